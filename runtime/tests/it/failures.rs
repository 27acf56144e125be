//! Failures of a module, which cost its own instance only.

use watm_runtime::{Error, ErrorCode, Phase, Server};

use watm_test_support::{
    Client, accept_datagrams, assert_serves, builder, counter, receive, records, run, serve,
    small_limits, wait_restarted, wait_until,
};

/// Makes the module fail by a command. Checks the record, the reset, the restart on the same port,
/// and that a neighbour does not notice.
fn fails(name: &str, command: &str, expected: &str) {
    records(name);
    let neighbour = serve("neighbour");
    let server = builder(name)
        .limits(small_limits())
        .config("kept")
        .start()
        .expect("starts");
    let address = server.local_addr("listen");
    let client = Client::new(&server);
    client.send(b"hello");
    run(async {
        let flow = accept_datagrams(&server).await;
        receive(&flow).await.expect("a datagram");
        client.send(command.as_bytes());
        assert_eq!(receive(&flow).await, Err(ErrorCode::ConnectionReset));
        assert_eq!(flow.send(b"late"), Err(ErrorCode::ConnectionReset));
    });
    assert_serves(&neighbour);
    wait_restarted(&server, 1);
    assert_eq!(server.local_addr("listen"), address);
    assert_serves(&server);
    let status = server.status().expect("answered");
    assert_eq!(status.phase, Phase::Running);
    assert!(status.counters["host.restarts"] >= 1);
    let records = records(name);
    let record = records
        .iter()
        .find(|record| record.level == tracing::Level::ERROR);
    let record = record.unwrap_or_else(|| panic!("no record: {records:?}"));
    assert!(record.text.contains(expected), "{record:?}");
    // With the configuration it had.
    client.send(b"again");
    let flow = run(server.accept()).expect("a flow");
    assert_eq!(flow.info().attributes[0].1, "kept");
    assert_serves(&neighbour);
}

#[test]
fn a_trap_at_a_datagram() {
    fails("trap", "!trap", "unreachable");
}

#[test]
fn a_call_that_spins() {
    fails("spin", "!spin", "used more than 100ms of CPU time");
}

#[test]
fn more_memory_than_allowed() {
    fails("eat", "!eat", "ran out of memory (limit 32 MiB)");
}

#[test]
fn a_handle_that_was_never_given() {
    fails("foreign", "!foreign", "unknown handle index");
}

#[test]
fn a_trap_or_a_spin_at_the_start_is_an_error() {
    let neighbour = serve("neighbour");
    for (config, expected) in [("trap", "unreachable"), ("spin", "of CPU time")] {
        let error = builder("at start")
            .limits(small_limits())
            .config(config)
            .start()
            .err()
            .expect("refused");
        assert!(matches!(error, Error::Trap { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_serves(&neighbour);
}

#[test]
fn a_trap_while_reconfiguring_is_told_and_the_old_configuration_kept() {
    let server = builder("reconfigured")
        .config("old")
        .start()
        .expect("starts");
    let error = server.reconfigure("trap").expect_err("refused");
    assert!(matches!(error, Error::Trap { .. }), "{error:?}");
    wait_restarted(&server, 1);
    Client::new(&server).send(b"hello");
    let flow = run(server.accept()).expect("a flow");
    assert_eq!(flow.info().attributes[0].1, "old");
}

#[test]
fn while_it_waits_the_server_answers_for_itself() {
    let server = serve("waiting");
    let client = Client::new(&server);
    // Each failure doubles the wait: after a few the state between instances is long enough to be
    // seen.
    let mut seen = false;
    for generation in 1..=4 {
        client.send(b"!trap");
        wait_until("a restart", || {
            let status = server.status().expect("always answered");
            if status.phase != Phase::Running {
                seen = true;
                assert!(matches!(
                    server.reconfigure(""),
                    Err(Error::Restarting { .. }) | Ok(())
                ));
                client.send(b"to nobody");
            }
            status.generation >= generation && status.phase == Phase::Running
        });
    }
    assert!(seen);
    assert!(counter(&server, "host.dropped.restarting") > 0);
    assert_serves(&server);
}

#[test]
fn flows_that_nobody_accepted_go_with_their_instance() {
    let server = serve("withdrawn");
    let client = Client::new(&server);
    client.send(b"hello");
    wait_until("a flow is offered", || counter(&server, "host.flows") == 1);
    client.send(b"!trap");
    wait_restarted(&server, 1);
    assert_eq!(counter(&server, "host.flows"), 0);
}

#[test]
fn closing_does_not_wait_for_a_module_that_spins() {
    // With the default limit, a second of CPU time.
    let server: Server = serve("spinning");
    Client::new(&server).send(b"!spin");
    std::thread::sleep(std::time::Duration::from_millis(50));
    server.close();
    run(server.wait_closed());
    assert_eq!(counter(&server, "host.restarts"), 0);
}
