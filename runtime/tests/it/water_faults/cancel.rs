//! Dials that are given up, and dials that would never end.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use watm_runtime::{Dialer, Error, Limits, Target, Wire};

use super::nobody;
use crate::water::{echo, exchange, plain};
use watm_test_support::water::{Guest, without_name};
use watm_test_support::{LOCALHOST, run};

/// Connects, and then waits for a byte from the peer.
const SHY: &str = "(global.set $net (call $dial_own))
    (drop (call $read (global.get $net) (i32.const 1024) (i32.const 1)))
    (global.get $net)";

fn soon() -> Limits {
    Limits {
        handshake_timeout: Duration::from_millis(80),
        connect_timeout: Duration::from_millis(80),
        ..Limits::for_connections()
    }
}

#[test]
fn a_dial_that_is_given_up_ends_its_own_connection_and_no_other() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let dialer = Guest::v1().connect(SHY).work(
            "(drop (call $read (global.get $caller) (i32.const 1024) (i32.const 4)))
            (call $tell (i32.load (i32.const 1024)))",
        );
        let dialer = dialer.dialer();
        let first = async {
            let (mut far, _) = listener.accept().await.expect("accepts");
            far.write_all(b"x").await.expect("written");
            far
        };
        let (first, mut first_far) = crate::water::both(dialer.dial(&address), first).await;
        let mut first = first.expect("connects");
        for _ in 0..5 {
            let dial = dialer.dial(&address);
            assert!(
                tokio::time::timeout(Duration::from_millis(20), dial)
                    .await
                    .is_err()
            );
            let (mut far, _) = listener.accept().await.expect("accepts");
            assert_eq!(far.read(&mut [0; 1]).await.expect("the end"), 0);
        }
        first
            .write_all(&7_i32.to_le_bytes())
            .await
            .expect("written");
        let mut answer = Vec::new();
        first.read_to_end(&mut answer).await.expect("the end");
        assert_eq!(answer, 7_i32.to_le_bytes());
        assert_eq!(first_far.read(&mut [0; 1]).await.expect("the end"), 0);
    });
}

#[test]
fn a_connection_outlives_the_dialer_and_the_task_that_made_it() {
    run(async {
        let echo = echo().await.to_string();
        let dial = async move {
            let dialer = Dialer::builder(&plain()).build().expect("a dialer");
            dialer.dial(&echo).await.expect("connects")
        };
        let connection = tokio::spawn(dial).await.expect("done");
        exchange(connection, b"hello").await;
    });
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    run(async {
        for guest in [
            Guest::v1().connect(SHY),
            Guest::v1().init("(call $pause (i32.const 100000000)) (i32.const 0)"),
            Guest::v1()
                .control("(call $read (global.get $control) (i32.const 1024) (i32.const 1))"),
            Guest::v1().with(r#"(func (export "_start") (call $pause (i32.const 100000000)))"#),
            // It never waits long.
            Guest::v1()
                .connect("(loop $again (call $pause (i32.const 1)) (br $again)) (i32.const 0)"),
        ] {
            let begin = Instant::now();
            let Err(error) = guest.limits(soon()).try_dial().await else {
                panic!("it is ready");
            };
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert_eq!(without_name(&error), "no answer within 0.08 s");
            assert!(begin.elapsed() < Duration::from_secs(5));
        }
    });
}

#[test]
fn a_connection_that_takes_too_long_is_a_timeout_with_its_target() {
    run(async {
        let never = |_: Target| std::future::pending::<std::io::Result<Wire>>();
        let limits = Limits {
            handshake_timeout: Duration::from_secs(20),
            ..soon()
        };
        let dialer = Dialer::builder(&plain()).limits(limits).connector(never);
        let dialer = dialer.build().expect("a dialer");
        let error = dialer.dial("example.com:443").await.expect_err("never");
        assert_eq!(error.to_string(), "plain: timeout (example.com:443)");
    });
}

#[test]
fn errors_name_their_cause() {
    run(async {
        let refused = nobody().await;
        let unresolvable = format!("{}.example:80", "a".repeat(64));
        let dialer = Dialer::builder(&plain()).name("mine").build();
        let dialer = dialer.expect("a dialer");
        for (address, start, end) in [
            (
                refused.to_string(),
                "mine: connection refused (127.0.0.1:",
                ")".to_owned(),
            ),
            (unresolvable.clone(), "mine: ", format!("({unresolvable})")),
            (
                "example.com".to_owned(),
                "address \"example.com\": has no port",
                String::new(),
            ),
            (
                "::1:80".to_owned(),
                "address \"::1:80\": an IPv6 address",
                String::new(),
            ),
        ] {
            let error = dialer.dial(&address).await.expect_err("no connection");
            let error = error.to_string();
            assert!(error.starts_with(start) && error.ends_with(&end), "{error}");
        }
        let denied = Guest::v1().with("(data (i32.const 1024) \"tcp192.0.2.1:80\")").connect(
            "(i32.store (i32.const 2048) (i32.const 1024)) (i32.store (i32.const 2052) (i32.const 3))
            (i32.store (i32.const 2056) (i32.const 1027)) (i32.store (i32.const 2060) (i32.const 12))
            (call $dial (i32.const 2048) (i32.const 1) (i32.const 2056) (i32.const 1))",
        );
        assert_eq!(
            denied.refusal().await,
            "not allowed to reach 192.0.2.1:80; the pattern \"192.0.2.1:80\" would allow it"
        );
    });
}
