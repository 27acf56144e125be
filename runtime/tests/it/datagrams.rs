//! Datagram flows over real sockets: sizes, batches, queues and idle times.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use watm_runtime::{Destination, ErrorCode, Reach, Server};

use watm_test_support::{
    Client, accept_datagrams, builder, counter, guest, receive, run, serve, small_limits,
    wait_until,
};

#[test]
fn datagrams_reach_the_application_and_its_answers_the_sender() {
    let server = serve("both ways");
    let client = Client::new(&server);
    client.send(b"one");
    run(async {
        let flow = accept_datagrams(&server).await;
        assert_eq!(flow.info().source, client.address());
        assert_eq!(
            flow.info().destination,
            Destination::Address(server.local_addr("listen").expect("granted"))
        );
        assert_eq!(flow.info().peer.as_deref(), Some("stranger"));
        assert_eq!(receive(&flow).await, Ok(Some(b"one".to_vec())));
        assert_eq!(flow.send(b"two"), Ok(true));
        assert_eq!(flow.send(b""), Ok(true));
        assert_eq!(client.receive().as_deref(), Some(&b"two"[..]));
        assert_eq!(client.receive().as_deref(), Some(&b""[..]));
        client.send(b"");
        assert_eq!(receive(&flow).await, Ok(Some(Vec::new())));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_module_is_told_what_goes_whole_and_once_it_asks_what_did_not() {
    let reach = Reach::none().allow("udp://127.0.0.1:9");
    let server = builder("whole").reach(reach.expect("a pattern")).start();
    let server = server.expect("starts");
    let client = Client::new(&server);
    // The size that IPv4 allows, through an interface that allows more.
    assert_eq!(
        client.ask("!long"),
        "Some(65507) Ok(1) Err(ErrorCode::DatagramTooLarge) Ok(1)"
    );
    assert_eq!(counter(&server, "host.dropped.send_too_large"), 2);
}

#[test]
fn a_module_that_wants_it_is_called_for_many_at_once() {
    const APART: Duration = Duration::from_micros(50);
    const COUNT: u32 = 600;
    let server = serve("coalesce");
    let client = Client::new(&server);
    assert_eq!(client.ask("!coalesce"), "coalescing");
    let before = counter(&server, "host.receive_calls");
    let begin = Instant::now();
    for number in 0..COUNT {
        while begin.elapsed() < APART * number {
            thread::yield_now();
        }
        client.send(b"one of many");
    }
    let took = begin.elapsed();
    // Calls before it are answered after the others.
    assert_eq!(client.ask("!ping"), "pong");
    let calls = counter(&server, "host.receive_calls") - before;
    // One in a millisecond, after those that pass at first, and some for the question.
    let expected = took.as_millis() as u64 + 16 + 20;
    assert!(calls <= expected, "{calls} calls in {took:?}");
    assert!(counter(&server, "host.datagrams_received") > COUNT.into());
}

#[test]
fn every_size_survives_in_order() {
    let server = serve("sizes");
    let client = Client::new(&server);
    client.send(b"begin");
    run(async {
        let flow = accept_datagrams(&server).await;
        assert_eq!(receive(&flow).await, Ok(Some(b"begin".to_vec())));
        // Runs of one size, so that trains form, between odd ones; up to the largest.
        for (number, size) in [0, 1, 1420, 1420, 1420, 1420, 1, 9000, 9000, 65_507, 1420, 3]
            .into_iter()
            .enumerate()
        {
            let datagram = vec![number as u8; size];
            assert_eq!(flow.send(&datagram), Ok(true));
            assert!(
                client.receive() == Some(datagram.clone()),
                "to the client: {size}"
            );
            client.send(&datagram);
            assert!(
                receive(&flow).await == Ok(Some(datagram)),
                "to the application: {size}"
            );
        }
    });
}

#[test]
fn a_burst_leaves_in_order_and_in_few_system_calls() {
    // Few enough for the receive buffer that a socket has by default, whoever runs first.
    const BURST: u8 = 50;
    const BURSTS: usize = 50;
    let server = serve("burst");
    let client = Client::new(&server);
    client.send(b"begin");
    run(async {
        let flow = accept_datagrams(&server).await;
        receive(&flow).await.expect("a datagram");
        // The scheduler decides whether the server waits until all have arrived.
        let together = (0..BURSTS).any(|_| {
            let before = counter(&server, "host.send_calls");
            for number in 0..BURST {
                assert_eq!(flow.send(&[number; 1200]), Ok(true));
            }
            for number in 0..BURST {
                assert!(client.receive() == Some(vec![number; 1200]), "{number}");
            }
            counter(&server, "host.send_calls") - before < u64::from(BURST)
        });
        if cfg!(target_os = "linux") {
            assert!(together, "each datagram left by itself");
        }
    });
}

#[test]
fn both_families_are_served_by_one_socket() {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let server = Server::builder(&guest())
        .udp("listen", any)
        .start()
        .expect("starts");
    let port = server.local_addr("listen").expect("granted").port();
    for ip in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        socket
            .set_read_timeout(Some(watm_test_support::PATIENCE))
            .expect("a timeout");
        socket.connect((ip, port)).expect("connects");
        socket.send(b"hello").expect("sent");
        run(async {
            let flow = accept_datagrams(&server).await;
            // An IPv4 address and not its IPv6 form.
            assert_eq!(flow.info().source, socket.local_addr().expect("bound"));
            assert_eq!(flow.send(b"answer"), Ok(true));
        });
        let mut buffer = [0; 10];
        assert_eq!(socket.recv(&mut buffer).expect("an answer"), 6);
    }
}

#[test]
fn a_flow_ends_for_both_when_the_application_closes_it() {
    let server = serve("closed flow");
    let client = Client::new(&server);
    client.send(b"one");
    run(async {
        let flow = accept_datagrams(&server).await;
        receive(&flow).await.expect("a datagram");
        assert_eq!(flow.send(b"last words"), Ok(true));
        flow.close();
        assert_eq!(client.receive().as_deref(), Some(&b"last words"[..]));
        assert_eq!(receive(&flow).await, Ok(None));
        assert_eq!(flow.send(b"more"), Err(ErrorCode::InvalidState));
        wait_until("the module forgets the flow", || {
            server.status().expect("answered").flows == 0
        });
        drop(flow);
        // The next datagram opens a new flow.
        client.send(b"two");
        let flow = accept_datagrams(&server).await;
        assert_eq!(receive(&flow).await, Ok(Some(b"two".to_vec())));
    });
    wait_until("both flows are forgotten", || {
        counter(&server, "host.flows") == 0
    });
}

#[test]
fn a_full_queue_drops_and_counts() {
    let server = builder("full")
        .limits(small_limits())
        .start()
        .expect("starts");
    let client = Client::new(&server);
    client.send(b"begin");
    run(async {
        let flow = accept_datagrams(&server).await;
        receive(&flow).await.expect("a datagram");
        assert_eq!(
            flow.send(&vec![0; 65_528]),
            Err(ErrorCode::DatagramTooLarge)
        );
        assert_eq!(client.ask("!stop-receiving"), "stop-receiving");
        // The module still answers this flow. Keep it busy elsewhere: the queue has ten places, so
        // a hundred sends at once overflow it.
        let sent = (0..10_000).filter(|_| flow.send(b"x") == Ok(true)).count();
        assert!(sent < 10_000);
        let dropped = counter(&server, "host.dropped.flow_to_module");
        assert_eq!(dropped, 10_000 - sent as u64);
        std::future::poll_fn(|cx| flow.poll_writable(cx))
            .await
            .expect("room again");
    });
}
