//! Flows, the end of the device, and swaps.

mod support;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use support::{
    Application, Flow, PROGRAM, Post, SERVER, arrive, checksum, counter, delete, grant, ipv4,
    options, refuse, run, sent, start, udp,
};
use watm_core::{ConfigError, Destination, ErrorCode, Instant, Transport, Wakeup};
use watm_tun::Tun;

#[test]
fn a_module_without_a_device_says_so() {
    let mut application = Application::new(0, &Post::default());
    refuse();
    let refused = Tun::start(options("", 0, None), &mut application);
    let Err(ConfigError::Other(reason)) = refused else {
        panic!("it started, or refused its configuration");
    };
    assert_eq!(
        reason,
        "no device for packets with label tun: access denied"
    );
}

#[test]
fn datagrams_become_flows_and_answers_become_packets() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    arrive(udp(4000, b"question"));
    run(&mut tun, &[], &mut application);
    let (info, token, end) = &application.flows[0];
    assert_eq!(info.source, SocketAddr::new(PROGRAM.into(), 4000));
    let server = SocketAddr::new(SERVER.into(), 53);
    assert_eq!(info.destination, Destination::Address(server));
    assert_eq!(info.peer.as_deref(), Some("tun"));
    assert_eq!(end.borrow().from_module, [b"question"]);
    end.borrow_mut().to_module.push_back(b"answer".to_vec());
    let token = *token;
    run(&mut tun, &[token], &mut application);
    let packets = sent();
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0][12..16], SERVER.octets());
    assert_eq!(packets[0][16..20], PROGRAM.octets());
    assert_eq!(packets[0][28..], *b"answer");
    assert_eq!(counter(&tun, "tun.packets_received"), 1);
    assert_eq!(counter(&tun, "tun.packets_sent"), 1);
}

#[test]
fn pings_are_answered_for_any_address() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1, b'x'];
    let sum = checksum(&echo);
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    arrive(ipv4(1, PROGRAM, SERVER, &echo));
    run(&mut tun, &[], &mut application);
    let packets = sent();
    assert_eq!(packets.len(), 1);
    assert_eq!((packets[0][9], packets[0][20]), (1, 0));
}

#[test]
fn a_device_that_is_gone_ends_its_flows_and_is_logged_once() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    arrive(udp(4000, b"question"));
    run(&mut tun, &[], &mut application);
    delete();
    for _ in 0..3 {
        // Token 0 is the device's.
        run(&mut tun, &[0], &mut application);
    }
    assert!(application.flows[0].2.borrow().ended);
    let expected = "the device tun is gone (connection aborted), and its flows are reset; make the \
                    device again and restart this server, which carries no packets until then";
    assert_eq!(application.log, [expected]);
}

#[test]
fn flows_stay_with_their_generation_in_a_swap() {
    grant();
    let post = Post::default();
    let mut old_host = Application::new(0, &post);
    let mut old = start(&mut old_host);
    arrive(udp(4000, b"1"));
    run(&mut old, &[], &mut old_host);
    assert_eq!(old_host.flows.len(), 1);

    let snapshot = old.snapshot(Instant(1));
    let mut new_host = Application::new(1, &post);
    let mut new = Tun::start(options("", 1, Some(snapshot)), &mut new_host).expect("it starts");
    new.serving(1, &mut new_host);
    // Nothing is read before the list of the old one, which would have to answer otherwise.
    arrive(udp(4000, b"2"));
    new.process(&[], &mut new_host);
    assert!(new_host.flows.is_empty());
    old.serving(1, &mut old_host);
    // Token 1 is the mailbox's.
    run(&mut new, &[1], &mut new_host);
    run(&mut old, &[1], &mut old_host);
    assert!(new_host.flows.is_empty());
    assert_eq!(old_host.flows[0].2.borrow().from_module, [b"1", b"2"]);

    // A new flow is the new one's, and the old one still answers its own.
    arrive(udp(4001, b"3"));
    run(&mut new, &[0], &mut new_host);
    assert_eq!(new_host.flows.len(), 1);
    let (_, token, end) = &old_host.flows[0];
    end.borrow_mut().to_module.push_back(b"answer".to_vec());
    let token = *token;
    run(&mut old, &[token], &mut old_host);
    assert!(sent().is_empty());
    run(&mut new, &[1], &mut new_host);
    assert_eq!(sent().len(), 1);
    assert_eq!(counter(&new, "tun.packets_sent"), 1);

    // Once its flows are idle, the old one has nothing left to do.
    old_host.now += 61_000_000_000;
    assert_eq!(run(&mut old, &[], &mut old_host), Wakeup::Finished);
    // The flow between the same ends is then the new one's.
    arrive(udp(4000, b"4"));
    run(&mut new, &[0], &mut new_host);
    run(&mut old, &[1], &mut old_host);
    run(&mut new, &[1], &mut new_host);
    assert_eq!(new_host.flows.len(), 2);
}

#[test]
fn a_predecessor_that_lists_nothing_is_waited_for_no_longer_than_a_second() {
    grant();
    let mut host = Application::new(1, &Post::default());
    let predecessor = Some(b"watm-tun 1".to_vec());
    let mut tun = Tun::start(options("", 1, predecessor), &mut host).expect("it starts");
    tun.serving(1, &mut host);
    arrive(udp(4000, b"1"));
    let wakeup = run(&mut tun, &[], &mut host);
    assert_eq!(wakeup, Wakeup::At(Instant(1_000_000_001)));
    host.now = 1_000_000_001;
    run(&mut tun, &[], &mut host);
    assert_eq!(host.flows.len(), 1);
}

#[test]
fn dials_need_an_address_of_the_family() {
    grant();
    let post = Post::default();
    let mut host = Application::new(0, &post);
    let config = r#"{"addresses": ["198.18.0.1"]}"#;
    let mut tun = Tun::start(options(config, 0, None), &mut host).expect("it starts");
    let mut dial = |address: IpAddr| {
        let end = Box::new(Flow(Rc::default()));
        let to = Destination::Address(SocketAddr::new(address, 80));
        tun.dial_datagrams(Some(&to), end, &mut host)
    };
    assert!(dial(IpAddr::V4(PROGRAM)).is_ok());
    let refused = dial("fd00::2".parse().expect("an address"));
    let expected = "addresses has none of the family of [fd00::2]:80; add one as the source of \
                    connections";
    assert_eq!(refused, Err(ErrorCode::Other(expected.to_owned())));
}

#[test]
fn errors_of_a_configuration_name_the_field() {
    grant();
    for (config, path, reason) in [
        (r#"{"mtu": 100}"#, "mtu", "1280"),
        (r#"{"mtu": "big"}"#, "mtu", "1280"),
        (
            r#"{"addresses": ["here"]}"#,
            "addresses",
            "list of addresses",
        ),
        (
            r#"{"addresses": "198.18.0.1"}"#,
            "addresses",
            "list of addresses",
        ),
        (r#"{"target": "here"}"#, "target", "an address and a port"),
        (
            r#"{"congestion_control": "reno"}"#,
            "congestion_control",
            "cubic",
        ),
        (r#"{"max_flows": 0}"#, "max_flows", "1"),
        (
            r#"{"network": 3}"#,
            "network",
            "expected networks by name or in words",
        ),
        (
            r#"{"network": "4h"}"#,
            "network",
            "'4h' is not the name of a network; expected edge, 3g",
        ),
        (
            r#"{"network": "3g loss=2"}"#,
            "network",
            "loss: '2' is not a share such as \"1%\"",
        ),
        (r#"{"nonsense": 1}"#, "nonsense", "unknown"),
    ] {
        let mut host = Application::new(0, &Post::default());
        let refused = Tun::start(options(config, 0, None), &mut host);
        let Err(ConfigError::Field(field, why)) = refused else {
            panic!("{config} is not refused for a field");
        };
        assert_eq!(field, path);
        assert!(why.contains(reason), "{config}: {why}");
    }
    for config in ["[]", "{", "1"] {
        let mut host = Application::new(0, &Post::default());
        let refused = Tun::start(options(config, 0, None), &mut host);
        assert!(matches!(refused, Err(ConfigError::Syntax(_))), "{config}");
    }
}
