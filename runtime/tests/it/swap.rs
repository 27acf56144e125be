//! Swaps of modules while flows are open.

use std::time::{Duration, Instant};

use watm_runtime::{DatagramFlow, Error, ErrorCode, Limits, Phase, Server, SwapOptions};

use watm_test_support::{
    Client, accept_datagrams, assert_serves, builder, counter, guest, receive, records, run, serve,
    tcp_forward, wait_until,
};

/// The probation, as short as the tests that wait for it allow.
const PROBATION: Duration = Duration::from_millis(100);

fn options() -> SwapOptions {
    SwapOptions {
        probation: PROBATION,
        ..SwapOptions::default()
    }
}

fn with_config(config: &str) -> SwapOptions {
    SwapOptions {
        config: Some(config.into()),
        ..options()
    }
}

/// Opens a flow of a client, which has said hello.
fn open(server: &Server) -> (Client, DatagramFlow) {
    let client = Client::new(server);
    client.send(b"hello");
    let flow = run(async {
        let flow = accept_datagrams(server).await;
        receive(&flow).await.expect("a datagram");
        flow
    });
    (client, flow)
}

fn assert_open(flow: &DatagramFlow, client: &Client) {
    flow.send(b"to the client").expect("open");
    assert_eq!(
        client.receive().as_deref(),
        Some(b"to the client".as_slice())
    );
}

fn numbers(server: &Server) -> Vec<u32> {
    let status = server.status().expect("answered");
    status
        .generations
        .iter()
        .map(|known| known.number)
        .collect()
}

#[test]
fn open_flows_stay_and_new_ones_are_the_new_module_s() {
    let server = serve("swapped");
    let (client, flow) = open(&server);
    assert_eq!(
        server.swap(&guest(), with_config("new")).expect("swapped"),
        1
    );
    assert_eq!(client.ask("!who"), "1 after Some(\"guest 0\")");
    assert_open(&flow, &client);
    let (_, new) = open(&server);
    assert_eq!(new.info().attributes[0].1, "new");
    let status = server.status().expect("answered");
    assert_eq!((status.phase, status.generation), (Phase::Running, 1));
    let flows: Vec<_> = status.generations.iter().map(|known| known.flows).collect();
    assert_eq!(flows, [1, 1]);
    assert!(status.generations[0].draining.is_some());
    assert_eq!(status.generations[1].draining, None);
    assert_eq!(status.generations[1].module, "guest");
    // The old one ends with its last flow.
    drop(flow);
    wait_until("the old generation ends", || numbers(&server) == [1]);
    assert_eq!(counter(&server, "host.restarts"), 0);
}

#[test]
fn generations_hear_each_other_and_of_the_end() {
    let server = serve("talking");
    let client = Client::new(&server);
    assert_eq!(client.ask("!tell 7 nobody"), "Ok(1)");
    let (_kept, flow) = open(&server);
    server.swap(&guest(), options()).expect("swapped");
    assert_eq!(client.ask("!tell 0 hello"), "Ok(1)");
    assert_eq!(client.ask("!tell 1 myself"), "Ok(1)");
    drop(flow);
    wait_until("the old generation ends", || numbers(&server) == [1]);
    wait_until("it is told", || {
        client.ask("!heard") == "1: myself, 0 has ended"
    });
    // A mailbox has a bound, and refuses invalid letters.
    assert_eq!(
        client.ask("!lie to others"),
        "Err(ErrorCode::InvalidArgument) Err(ErrorCode::InvalidArgument) 4 \
         Some(ErrorCode::InvalidState)"
    );
}

#[test]
fn a_module_that_does_not_start_leaves_the_old_one_alone() {
    let server = serve("refusing");
    let (client, flow) = open(&server);
    for (config, expected) in [("syntax", "configuration refused"), ("trap", "unreachable")] {
        let error = server
            .swap(&guest(), with_config(config))
            .expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(client.ask("!who"), "0 after None");
        assert_open(&flow, &client);
    }
    let error = server.swap(&tcp_forward(), options()).expect_err("refused");
    assert!(error.to_string().contains("must be tcp"), "{error}");
    assert_eq!(numbers(&server), [0]);
    assert_eq!(counter(&server, "host.restarts"), 0);
}

#[test]
fn a_module_that_starts_for_ever_does_not_hold_up_the_one_that_serves() {
    let limits = Limits {
        cpu_per_call: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = builder("looping").limits(limits).start().expect("starts");
    let (client, flow) = open(&server);
    let looping = server.clone();
    let swapping = async move { looping.swap_async(&guest(), with_config("spin")).await };
    let swap = std::thread::spawn(move || run(swapping));
    let mut answers = 0;
    while !swap.is_finished() {
        assert_eq!(client.ask("!who"), "0 after None");
        assert_open(&flow, &client);
        answers += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    // While held up, it answers the calls from before the swap, and then nothing until the end.
    assert!(answers > 20, "{answers}");
    let error = swap.join().expect("no panic").expect_err("stopped");
    assert!(matches!(error, Error::Trap { .. }), "{error:?}");
    server.swap(&guest(), with_config("new")).expect("swapped");
    assert_eq!(client.ask("!who"), "2 after Some(\"guest 0\")");
}

#[test]
fn a_server_closes_while_a_module_starts() {
    let limits = Limits {
        cpu_per_call: Duration::from_secs(20),
        ..Limits::default()
    };
    let server = builder("closing").limits(limits).start().expect("starts");
    let address = server.local_addr("listen").expect("granted");
    let closing = server.clone();
    let swap = std::thread::spawn(move || closing.swap(&guest(), with_config("spin")));
    // The configuration belongs to the new module by then.
    let busy = || matches!(server.reconfigure("other"), Err(Error::Busy { .. }));
    wait_until("the module starts", busy);
    let second = server.swap(&guest(), options());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    server.close();
    run(server.wait_closed());
    assert!(swap.join().expect("no panic").is_err());
    // Nothing of it is left.
    std::net::UdpSocket::bind(address).expect("free again");
}

#[test]
fn a_module_that_fails_at_once_is_taken_back() {
    records("taken back");
    let server = serve("taken back");
    let (client, flow) = open(&server);
    let error = server
        .swap(&guest(), with_config("trap when serving"))
        .expect_err("failed");
    assert!(matches!(error, Error::Swap { .. }), "{error:?}");
    assert!(error.to_string().contains("was rolled back: "), "{error}");
    assert_eq!(client.ask("!who"), "0 after None");
    assert_open(&flow, &client);
    // The same with a module that fails by a peer's datagram.
    let (server_2, client_2) = (server.clone(), Client::new(&server));
    let swap = std::thread::spawn(move || {
        let probation = Duration::from_secs(20);
        server_2.swap(
            &guest(),
            SwapOptions {
                probation,
                ..options()
            },
        )
    });
    wait_until("the new one serves", || client.ask("!who").starts_with("2"));
    assert!(matches!(
        server.swap(&guest(), options()),
        Err(Error::Busy { .. })
    ));
    client_2.send(b"!trap");
    let error = swap.join().expect("no panic").expect_err("failed");
    assert!(matches!(error, Error::Swap { .. }), "{error:?}");
    assert_eq!(client.ask("!who"), "0 after None");
    assert_open(&flow, &client);
    assert_eq!(numbers(&server), [0]);
    let told = records("taken back");
    assert!(
        told.iter()
            .any(|record| record.text.contains("rolled back to")),
        "{told:?}"
    );
}

#[test]
fn failures_of_old_generations_are_their_own() {
    let server = builder("old failure")
        .config("trap when retired")
        .start()
        .expect("starts");
    let (client, flow) = open(&server);
    server.swap(&guest(), with_config("fine")).expect("swapped");
    assert_eq!(run(receive(&flow)), Err(ErrorCode::ConnectionReset));
    assert_eq!(client.ask("!who"), "1 after Some(\"guest 0\")");
    assert_eq!(numbers(&server), [1]);
    let server = builder("no snapshot")
        .config("trap at snapshot")
        .start()
        .expect("starts");
    let error = server
        .swap(&guest(), with_config("fine"))
        .expect_err("failed");
    assert!(matches!(error, Error::Trap { .. }), "{error:?}");
    wait_until("it runs again", || counter(&server, "host.restarts") == 1);
    assert_serves(&server);
}

#[test]
fn a_crash_loop_ends_with_the_module_that_did_well() {
    let server = builder("crash loop")
        .config("good")
        .start()
        .expect("starts");
    server.swap(&guest(), with_config("bad")).expect("swapped");
    let client = Client::new(&server);
    for failures in 1..=3 {
        client.send(b"!trap");
        wait_until("it runs again", || {
            counter(&server, "host.restarts") == failures
        });
        let (_, flow) = open(&server);
        let expected = if failures < 3 { "bad" } else { "good" };
        assert_eq!(flow.info().attributes[0].1, expected);
    }
    // Only once: after that there is nothing to fall back to.
    for failures in 4..=7 {
        client.send(b"!trap");
        wait_until("it runs again", || {
            counter(&server, "host.restarts") == failures
        });
    }
    let (_, flow) = open(&server);
    assert_eq!(flow.info().attributes[0].1, "good");
}

#[test]
fn a_restart_knows_of_the_generations_before_it() {
    let server = serve("restarted with others");
    let (client, flow) = open(&server);
    server.swap(&guest(), options()).expect("swapped");
    client.send(b"!trap");
    wait_until("it runs again", || counter(&server, "host.restarts") == 1);
    assert_eq!(client.ask("!who"), "2 after Some(\"guest 0\")");
    assert_open(&flow, &client);
    assert_eq!(numbers(&server), [0, 2]);
}

#[test]
fn a_deadline_ends_what_does_not_end_by_itself() {
    let server = serve("drained");
    let (client, flow) = open(&server);
    let drain = Some(Duration::from_millis(300));
    let begin = Instant::now();
    server
        .swap(&guest(), SwapOptions { drain, ..options() })
        .expect("swapped");
    assert_open(&flow, &client);
    assert_eq!(run(receive(&flow)), Err(ErrorCode::ConnectionReset));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert_eq!(numbers(&server), [1]);
}

#[test]
fn generations_are_bounded() {
    let limits = Limits {
        generations: 3,
        ..Limits::default()
    };
    let server = builder("bounded").limits(limits).start().expect("starts");
    let mut kept = Vec::new();
    for _ in 0..2 {
        kept.push(open(&server));
        server.swap(&guest(), options()).expect("swapped");
    }
    kept.push(open(&server));
    let error = server.swap(&guest(), options()).expect_err("refused");
    assert!(error.to_string().contains("3 generations"), "{error}");
    kept.remove(0);
    wait_until("one has ended", || numbers(&server) == [1, 2]);
    server.swap(&guest(), options()).expect("swapped");
    assert_eq!(numbers(&server), [1, 2, 3]);
    for (client, flow) in &kept {
        assert_open(flow, client);
    }
}

#[test]
fn a_hundred_swaps_leave_nothing_behind() {
    let server = serve("a hundred");
    let (client, flow) = open(&server);
    let swap = || {
        let probation = Duration::ZERO;
        server
            .swap(
                &guest(),
                SwapOptions {
                    probation,
                    ..options()
                },
            )
            .expect("swapped");
        assert_open(&flow, &client);
    };
    (0..10).for_each(|_| swap());
    wait_until("the last one before has ended", || {
        numbers(&server).len() == 2
    });
    let (memory, descriptors) = (counter(&server, "host.memory_bytes"), open_files());
    let running = threads();
    (0..100).for_each(|_| swap());
    wait_until("the last one before has ended", || {
        numbers(&server).len() == 2
    });
    assert_eq!(counter(&server, "host.memory_bytes"), memory);
    // Other tests have files and threads too, but not a hundred more than before.
    assert!(open_files() < descriptors + 50);
    assert!(threads() < running + 50);
    assert_eq!(counter(&server, "host.flows"), 1);
}

/// Returns the number of open descriptors of this process, where the system lists them.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns the number of its threads.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn connections_stay_with_the_module_that_accepted_them() {
    use std::io::{Read, Write};
    let server = Server::builder(&tcp_forward())
        .tcp("listen", "127.0.0.1:0".parse().expect("an address"))
        .start()
        .expect("starts");
    let address = server.local_addr("listen").expect("granted");
    let connect = || std::net::TcpStream::connect(address).expect("connects");
    let mut old = connect();
    let first = run(watm_test_support::accept_stream(&server));
    server.swap(&tcp_forward(), options()).expect("swapped");
    let mut new = connect();
    let second = run(watm_test_support::accept_stream(&server));
    for (client, flow) in [(&mut old, &first), (&mut new, &second)] {
        client.write_all(b"ping").expect("writes");
        assert_eq!(run(watm_test_support::read(flow)).expect("reads"), b"ping");
        flow.queue_write(b"pong").expect("open");
        let mut answer = [0; 4];
        client.read_exact(&mut answer).expect("reads");
    }
    assert_eq!(numbers(&server), [0, 1]);
    drop((old, first));
    wait_until("the old generation ends", || numbers(&server) == [1]);
}
