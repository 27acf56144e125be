//! WATER modules as dialers and fixed dialers.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use watm_runtime::{Dialer, Error, FixedDialer, Reach, Role};

use super::{component, echo, exchange, module, pattern, plain};
use watm_test_support::{LOCALHOST, run};

#[test]
fn a_dialer_passes_bytes_both_ways_and_the_end() {
    run(async {
        let echo = echo().await;
        let dialer = Dialer::builder(&plain()).build().expect("a dialer");
        for len in [0, 1, 1000, 1 << 20] {
            let connection = dialer.dial(&echo.to_string()).await.expect("connects");
            assert_eq!(connection.peer_addr().expect("known"), echo);
            assert!(connection.local_addr().expect("known").port() > 0);
            exchange(connection, &pattern(len)).await;
        }
        let status = dialer.status().await.expect("answered");
        assert_eq!(status.used.flows_opened, 4);
    });
}

#[test]
fn a_module_says_what_it_can_do() {
    let info = plain().info().clone();
    assert_eq!(info.roles, Role::ALL);
    assert_eq!(info.problems, Vec::<String>::new());
}

#[test]
fn a_refused_connection_is_named() {
    run(async {
        let nobody = {
            let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
            listener.local_addr().expect("bound")
        };
        for module in [plain(), component()] {
            let dialer = Dialer::builder(&module).build().expect("a dialer");
            let error = dialer.dial(&nobody.to_string()).await.expect_err("refused");
            assert_eq!(
                error.to_string(),
                format!("plain: connection refused ({nobody})")
            );
            let Error::Connect { source, .. } = error else {
                panic!("another error: {error:?}");
            };
            assert_eq!(source.kind(), ErrorKind::ConnectionRefused);
            let error = dialer.dial("nowhere").await.expect_err("no address");
            assert!(error.to_string().contains("no port"), "{error}");
        }
    });
}

#[test]
fn a_fixed_dialer_goes_where_its_reach_admits_it() {
    run(async {
        let echo = echo().await;
        let builder = || FixedDialer::builder(&plain()).config(echo.to_string());
        let error = builder().build().expect("a dialer").dial().await;
        assert!(matches!(error, Err(Error::Denied { .. })), "{error:?}");
        let elsewhere = Reach::none()
            .allow(&format!("127.0.0.0/8:{}", echo.port() ^ 1))
            .expect("a pattern");
        let error = builder()
            .reach(elsewhere)
            .build()
            .expect("a dialer")
            .dial()
            .await;
        assert!(matches!(error, Err(Error::Denied { .. })), "{error:?}");
        let reach = Reach::none()
            .allow(&format!("127.0.0.0/8:{}", echo.port()))
            .expect("a pattern");
        let dialer = builder().reach(reach).build().expect("a dialer");
        let connection = dialer.dial().await.expect("connects");
        assert_eq!(connection.peer_addr().expect("known"), echo);
        exchange(connection, &pattern(1000)).await;
    });
}

#[test]
fn either_direction_ends_by_itself() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let dialer = Dialer::builder(&plain()).build().expect("a dialer");
        let mut connection = dialer.dial(&address).await.expect("connects");
        let (mut far, _) = listener.accept().await.expect("accepts");
        // Half-closed here first; then everything from the other end still arrives.
        connection.write_all(b"question").await.expect("written");
        connection.shutdown().await.expect("shut down");
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.expect("the end");
        assert_eq!(heard, b"question");
        far.write_all(&pattern(300_000)).await.expect("written");
        drop(far);
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.expect("the end");
        assert!(answer == pattern(300_000));

        // Half-closed there first; then everything from here is still sent.
        let mut connection = dialer.dial(&address).await.expect("connects");
        let (mut far, _) = listener.accept().await.expect("accepts");
        far.shutdown().await.expect("shut down");
        assert_eq!(connection.read(&mut [0; 10]).await.expect("the end"), 0);
        connection
            .write_all(&pattern(300_000))
            .await
            .expect("written");
        connection.shutdown().await.expect("shut down");
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.expect("the end");
        assert!(heard == pattern(300_000));
    });
}

#[test]
fn what_was_written_before_closing_arrives() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let dialer = Dialer::builder(&plain()).build().expect("a dialer");
        let mut connection = dialer.dial(&address).await.expect("connects");
        let (mut far, _) = listener.accept().await.expect("accepts");
        connection
            .write_all(&pattern(60_000))
            .await
            .expect("written");
        drop(connection);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.expect("the end");
        assert!(heard == pattern(60_000), "{}", heard.len());
    });
}

#[test]
fn a_read_that_is_given_up_leaves_the_connection_as_it_was() {
    run(async {
        let echo = echo().await;
        let dialer = Dialer::builder(&plain()).build().expect("a dialer");
        let mut connection = dialer.dial(&echo.to_string()).await.expect("connects");
        let mut buffer = [0; 10];
        let read = connection.read(&mut buffer);
        let read = tokio::time::timeout(Duration::from_millis(20), read).await;
        assert!(read.is_err(), "nothing was sent");
        exchange(connection, b"hello").await;
    });
}

#[test]
fn datagrams_go_where_a_pattern_for_them_admits_it() {
    const DATAGRAMS: &str = watm_test_support::water::PLAIN;
    run(async {
        let far = tokio::net::UdpSocket::bind(LOCALHOST)
            .await
            .expect("a port");
        let address = far.local_addr().expect("bound");
        // The same module, except that it asks for udp.
        let module = module("datagrams", &DATAGRAMS.replace("\"tcp\"", "\"udp\""));
        let dialer = |pattern: &str| {
            let reach = Reach::none().allow(pattern).expect("a pattern");
            let builder = FixedDialer::builder(&module).config(address.to_string());
            builder.reach(reach).build().expect("a dialer")
        };
        let error = dialer("tcp://127.0.0.1").dial().await;
        assert!(matches!(error, Err(Error::Denied { .. })), "{error:?}");
        let mut connection = dialer("udp://127.0.0.1").dial().await.expect("connects");
        for datagram in [&b"one"[..], b"two"] {
            connection.write_all(datagram).await.expect("written");
            let mut buffer = [0; 10];
            let (len, from) = far.recv_from(&mut buffer).await.expect("received");
            assert_eq!(&buffer[..len], datagram);
            far.send_to(b"", from).await.expect("sent");
            far.send_to(&buffer[..len], from).await.expect("sent");
            let heard = connection.read(&mut buffer).await.expect("read");
            assert_eq!(&buffer[..heard], datagram);
        }
    });
}

/// Makes a module whose worker ends with `code` at once.
fn ends_with(code: &str) -> watm_runtime::Module {
    module(
        "ends",
        &format!(
            r#"(module
                (import "env" "water_dial_fixed" (func $dial (result i32)))
                (memory (export "memory") 1)
                (func (export "watm_init_v1") (result i32) (i32.const 0))
                (func (export "watm_ctrlpipe_v1") (param i32) (result i32) (i32.const 0))
                (func (export "watm_dial_v1") (param i32) (result i32) (call $dial))
                (func (export "watm_start_v1") (result i32) {code}))"#
        ),
    )
}

#[test]
fn a_connection_ends_with_its_worker_and_says_why() {
    run(async {
        let echo = echo().await;
        for (code, expected) in [
            ("(i32.const 0)", None),
            ("(i32.const -29)", Some("EIO")),
            ("(i32.const -11)", Some("ECANCELED")),
            ("(unreachable)", Some("unreachable")),
            (
                "(loop $for_ever (br $for_ever)) (unreachable)",
                Some("CPU time"),
            ),
        ] {
            let limits = watm_runtime::Limits {
                cpu_per_call: Duration::from_millis(100),
                ..watm_runtime::Limits::for_connections()
            };
            let dialer = Dialer::builder(&ends_with(code)).limits(limits);
            let dialer = dialer.build().expect("a dialer");
            let mut connection = dialer.dial(&echo.to_string()).await.expect("connects");
            let end = connection.read(&mut [0; 10]).await;
            match (end, expected) {
                (Ok(0), None) => {}
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(expected), "{code}: {error}");
                }
                (end, _) => panic!("{code}: {end:?}"),
            }
        }
    });
}

#[test]
fn a_module_that_does_not_end_when_told_to_is_stopped() {
    run(async {
        let echo = echo().await;
        let code = "(loop $for_ever (br $for_ever)) (unreachable)";
        let dialer = Dialer::builder(&ends_with(code)).build().expect("a dialer");
        let connection = dialer.dial(&echo.to_string()).await.expect("connects");
        let begin = Instant::now();
        connection.close().await;
        assert!(begin.elapsed() < Duration::from_secs(3));
    });
}
