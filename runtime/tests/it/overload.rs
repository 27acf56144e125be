//! Modules that want more than is available, and lie about their usage.

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;
use watm_runtime::{ErrorCode, Flow, Limits, Reach, Server};

use watm_test_support::{
    Client, LOCALHOST, accept_stream, assert_serves, builder, counter, read, records, run, serve,
    small_limits, tcp_forward, wait_until,
};

#[test]
fn lengths_that_lie_are_refused_and_huge_limits_are_harmless() {
    let server = serve("lies");
    let answer = Client::new(&server).ask("!lie");
    let invalid = "Err(ErrorCode::InvalidArgument)";
    assert_eq!(
        answer,
        [
            invalid,
            invalid,
            invalid,
            invalid,
            "Ok(0)",
            invalid,
            invalid,
            "Err(ErrorCode::DatagramTooLarge)",
            "Ok(0)",
            "Ok(0)",
        ]
        .join(" ")
    );
    assert_serves(&server);
}

#[test]
fn offered_flows_are_bounded_by_the_backlog_and_open_ones_by_the_limit() {
    records("flows");
    let server = builder("flows")
        .limits(small_limits())
        .start()
        .expect("starts");
    let client = Client::new(&server);
    assert_eq!(client.ask("!flows"), "20 ErrorCode::LimitReached");
    assert!(counter(&server, "host.flows_refused.backlog") >= 1);
    let mut accepted = Vec::new();
    for _ in 0..20 {
        accepted.push(run(server.accept()).expect("a flow"));
    }
    assert_eq!(client.ask("!flows"), "40 ErrorCode::LimitReached");
    for _ in 0..20 {
        accepted.push(run(server.accept()).expect("a flow"));
    }
    assert_eq!(client.ask("!flows"), "50 ErrorCode::LimitReached");
    assert!(counter(&server, "host.flows_refused.limit") >= 1);
    assert_eq!(counter(&server, "host.flows"), 50);
    let warnings = ["20 wait for the application", "50 are open"];
    let records = records("flows");
    for warning in warnings {
        let said = records
            .iter()
            .filter(|record| record.text.contains(warning));
        assert_eq!(said.count(), 1, "{warning}: {records:?}");
    }
    assert_serves(&server);
}

#[test]
fn what_the_application_keeps_for_flows_is_charged_to_the_module() {
    let limits = Limits {
        flow_bytes: 10 << 20,
        ..small_limits()
    };
    let server = builder("charged").limits(limits).start().expect("starts");
    // 32 MiB are the module's memory, of which it uses little, and 16 MiB are for the host's data.
    let answer = Client::new(&server).ask("!flows");
    assert_eq!(answer, "4 ErrorCode::LimitReached");
    assert!(counter(&server, "host.kept.memory_bytes") >= 40 << 20);
    assert_serves(&server);
}

#[test]
fn queues_towards_the_application_are_bounded() {
    let limits = small_limits();
    let server = builder("fill")
        .limits(limits.clone())
        .start()
        .expect("starts");
    let answer = Client::new(&server).ask("!fill");
    assert_eq!(
        answer,
        format!("{} {}", limits.stream_buffer_bytes, limits.datagram_queue)
    );
    run(async {
        let Some(Flow::Stream(stream)) = server.accept().await else {
            panic!("a stream comes first");
        };
        let mut total = 0;
        while total < limits.stream_buffer_bytes {
            let data = watm_test_support::read(&stream).await.expect("data");
            assert!(data.iter().all(|byte| *byte == 7));
            total += data.len();
        }
        assert_eq!(total, limits.stream_buffer_bytes);
    });
}

#[test]
fn a_reason_is_cut_and_names_that_are_longer_than_any_host_has_are_refused() {
    let server = builder("long-texts").reach(everywhere()).start();
    let server = server.expect("starts");
    let client = Client::new(&server);
    assert_eq!(client.ask("!long reason"), "reset");
    run(async {
        let flow = accept_stream(&server).await;
        let reason = read(&flow).await.expect_err("it was reset");
        assert_eq!(reason, ErrorCode::Other("x".repeat(256).into()));
    });
    let none = ["None"; 4].join(" ");
    let invalid = ["Some(ErrorCode::InvalidArgument)"; 4].join(" ");
    assert_eq!(
        client.ask("!long names"),
        [none, invalid.clone(), invalid].join("\n")
    );
    assert_serves(&server);
}

fn everywhere() -> Reach {
    Reach::none().allow("*").expect("a pattern")
}

#[test]
fn connections_that_it_makes_are_bounded_by_its_descriptors() {
    let limits = Limits {
        descriptors: 5,
        ..small_limits()
    };
    let server = builder("descriptors").reach(everywhere()).limits(limits);
    let server = server.start().expect("starts");
    let client = Client::new(&server);
    assert_eq!(client.ask("!connections"), "5 ErrorCode::LimitReached");
    assert_eq!(client.ask("!disconnect"), "disconnected");
    assert_eq!(client.ask("!connections"), "5 ErrorCode::LimitReached");
}

#[test]
fn connections_that_it_accepts_are_bounded_by_its_descriptors() {
    let limits = Limits {
        descriptors: 2,
        ..Limits::default()
    };
    let server = Server::builder(&tcp_forward())
        .name("descriptors-accepted")
        .tcp("listen", LOCALHOST)
        .limits(limits)
        .start()
        .expect("starts");
    let address = server.local_addr("listen").expect("granted");
    let connect = || TcpStream::connect(address).expect("the kernel takes it");
    let (first, _second, _third) = (connect(), connect(), connect());
    run(async {
        let flow = accept_stream(&server).await;
        let _other = accept_stream(&server).await;
        let third = timeout(Duration::from_millis(300), accept_stream(&server)).await;
        assert!(third.is_err(), "beyond the limit");
        assert!(counter(&server, "host.accept_shortages") > 0);
        drop((flow, first));
        accept_stream(&server).await;
    });
}

#[test]
fn handles_that_come_and_go_in_one_call_are_bounded() {
    let limits = Limits {
        handles: 10,
        ..small_limits()
    };
    let server = builder("churn").reach(everywhere()).limits(limits);
    let server = server.start().expect("starts");
    let client = Client::new(&server);
    let answer = client.ask("!churn");
    let count = answer.strip_suffix(" ErrorCode::LimitReached");
    let count = count.and_then(|count| count.parse().ok());
    assert!(
        count.is_some_and(|count: u32| (1000..1100).contains(&count)),
        "{answer}"
    );
    // Resources that the call left behind are gone.
    assert_eq!(client.ask("!churn"), answer);
}

#[test]
fn again_for_ever_starves_nobody() {
    let server = serve("restless");
    let client = Client::new(&server);
    assert_eq!(client.ask("!again"), "restless");
    for _ in 0..20 {
        server.status().expect("answered");
    }
    assert_eq!(client.ask("!ping"), "pong");
    // It is slowed down: in a tenth of a second, far fewer calls than it could make.
    let before = counter(&server, "host.process_calls");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let calls = counter(&server, "host.process_calls") - before;
    assert!(calls < 10_000, "{calls} calls");
    assert_serves(&server);
}

#[test]
fn again_is_believed_of_a_module_that_moves_something_each_time() {
    /// The number of calls: with a pause after each they take longer than anybody waits.
    const MANY: u64 = 40_000;
    let server = serve("busy");
    let client = Client::new(&server);
    assert_eq!(client.ask("!busy"), "busy");
    let before = counter(&server, "host.process_calls");
    wait_until("many calls", || {
        counter(&server, "host.process_calls") - before > MANY
    });
    assert_serves(&server);
}

#[test]
fn a_module_that_never_reads_keeps_its_neighbours_and_its_commands() {
    let silent = serve("silent");
    let client = Client::new(&silent);
    assert_eq!(client.ask("!stop-receiving"), "stop-receiving");
    for _ in 0..1000 {
        client.send(&[1; 1000]);
    }
    assert_serves(&serve("neighbour"));
    silent.status().expect("answered");
    silent.close();
    run(silent.wait_closed());
}

#[test]
fn many_servers_start_and_stop() {
    for _ in 0..20 {
        let server = serve("short-lived");
        assert_serves(&server);
        let address = server.local_addr("listen").expect("granted");
        UdpSocket::bind(address).expect_err("taken by the server");
        drop(server);
        wait_until("its socket is closed", || UdpSocket::bind(address).is_ok());
    }
    assert_serves(&serve("last"));
}
