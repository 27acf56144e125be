//! The bad network that a configuration asks for.

mod support;

use std::time::Duration;

use support::{
    Application, Post, SERVER, arrive, counter, delete, grant, options, run, run_for, sent,
    start_with, udp, udp_to,
};
use watm_core::{Instant, Transport, Wakeup};
use watm_tun::Tun;

const MS: Duration = Duration::from_millis(1);

fn with_network(words: &str) -> String {
    format!(r#"{{"network": "{words}"}}"#)
}

/// A device with this network, and its application.
fn with(words: &str) -> (Tun, Application) {
    grant();
    let mut host = Application::new(0, &Post::default());
    let tun = start_with(&with_network(words), &mut host);
    (tun, host)
}

fn ask(tun: &mut Tun, host: &mut Application) {
    arrive(udp(4000, b"question"));
    run(tun, &[0], host);
}

#[test]
fn packets_take_their_delay_in_both_directions() {
    let (mut tun, mut host) = with("delay=100ms direction=from-peer, delay=50ms");
    ask(&mut tun, &mut host);
    run_for(99 * MS, &mut tun, &mut host);
    assert_eq!(host.came(), 0);
    run_for(MS, &mut tun, &mut host);
    assert_eq!(host.came(), 1);

    let token = host.answer(b"answer");
    run(&mut tun, &[token], &mut host);
    run_for(49 * MS, &mut tun, &mut host);
    assert!(sent().is_empty());
    run_for(MS, &mut tun, &mut host);
    assert_eq!(sent()[0][28..], *b"answer");
}

#[test]
fn the_host_is_asked_to_call_when_a_packet_is_due() {
    let (mut tun, mut host) = with("delay=100ms");
    arrive(udp(4000, b"question"));
    let due = host.now + 100_000_000;
    let wakeup = run(&mut tun, &[0], &mut host);
    assert_eq!(wakeup, Wakeup::At(Instant(due)));
}

#[test]
fn packets_are_lost_by_host_and_port() {
    let (mut tun, mut host) = with(&format!("host={SERVER}:53 loss=100%"));
    arrive(udp_to(53, 4000, b"lost"));
    arrive(udp_to(54, 4000, b"not lost"));
    run(&mut tun, &[0], &mut host);
    assert_eq!(host.flows.len(), 1);
    assert_eq!(host.flows[0].2.borrow().from_module, [b"not lost"]);
    assert_eq!(counter(&tun, "network.lost"), 1);
}

#[test]
fn the_peer_of_rules_is_the_device() {
    for (peer, came) in [("tun", 0), ("other", 1)] {
        let (mut tun, mut host) = with(&format!("peer={peer} loss=100%"));
        ask(&mut tun, &mut host);
        assert_eq!(host.came(), came);
    }
}

#[test]
fn a_new_configuration_replaces_the_network_and_loses_no_packet_that_waits() {
    let (mut tun, mut host) = with("delay=30s");
    ask(&mut tun, &mut host);
    let change = |tun: &mut Tun, host: &mut Application, words| {
        let changed = tun.reconfigure(with_network(words).as_bytes(), host);
        changed.expect("a good configuration");
        run(tun, &[], host);
        host.came()
    };
    assert_eq!(change(&mut tun, &mut host, "loss=100%"), 1);
    ask(&mut tun, &mut host);
    assert_eq!(host.came(), 1);
    assert_eq!(counter(&tun, "network.lost"), 1);
    let refused = tun.reconfigure(with_network("loss=2").as_bytes(), &mut host);
    let why = refused.expect_err("a wrong share").to_string();
    assert!(
        why.contains("network") && why.contains("'2' is not a share"),
        "{why}"
    );
    ask(&mut tun, &mut host);
    assert_eq!(counter(&tun, "network.lost"), 2);
    change(&mut tun, &mut host, "off");
    ask(&mut tun, &mut host);
    assert_eq!(host.came(), 2);
}

#[test]
fn a_device_that_is_gone_leaves_no_packets() {
    let (mut tun, mut host) = with("delay=100ms");
    ask(&mut tun, &mut host);
    delete();
    run(&mut tun, &[0], &mut host);
    run_for(200 * MS, &mut tun, &mut host);
    assert!(host.flows.is_empty());
}

#[test]
fn the_network_of_the_generation_that_serves_has_the_packets_of_all() {
    grant();
    let post = Post::default();
    let mut old_host = Application::new(0, &post);
    let mut old = start_with("", &mut old_host);
    ask(&mut old, &mut old_host);
    let snapshot = old.snapshot(Instant(1));
    let mut new_host = Application::new(1, &post);
    let config = with_network("delay=10ms direction=from-peer, delay=50ms");
    let options = options(&config, 1, Some(snapshot));
    let mut new = Tun::start(options, &mut new_host).expect("it starts");
    new.serving(1, &mut new_host);
    old.serving(1, &mut old_host);
    run(&mut new, &[1], &mut new_host);

    ask(&mut new, &mut new_host);
    run_for(9 * MS, &mut new, &mut new_host);
    run(&mut old, &[1], &mut old_host);
    assert_eq!(old_host.came(), 1);
    run_for(MS, &mut new, &mut new_host);
    run(&mut old, &[1], &mut old_host);
    assert_eq!(old_host.came(), 2);

    let token = old_host.answer(b"answer");
    run(&mut old, &[token], &mut old_host);
    run(&mut new, &[1], &mut new_host);
    run_for(49 * MS, &mut new, &mut new_host);
    assert!(sent().is_empty());
    run_for(MS, &mut new, &mut new_host);
    assert_eq!(sent().len(), 1);
}

#[test]
fn a_generation_that_drains_ends_after_the_packets_that_its_network_holds() {
    grant();
    let mut host = Application::new(0, &Post::default());
    let config = r#"{"network": "delay=50s direction=to-peer", "udp_idle_timeout": 1}"#;
    let mut tun = start_with(config, &mut host);
    ask(&mut tun, &mut host);
    let token = host.answer(b"answer");
    run(&mut tun, &[token], &mut host);
    tun.serving(1, &mut host);
    run_for(10_000 * MS, &mut tun, &mut host);
    assert!(host.flows[0].2.borrow().ended);
    assert_ne!(run(&mut tun, &[], &mut host), Wakeup::Finished);
    assert!(sent().is_empty());
    run_for(40_000 * MS, &mut tun, &mut host);
    assert_eq!(sent().len(), 1);
    assert_eq!(run(&mut tun, &[], &mut host), Wakeup::Finished);
}
