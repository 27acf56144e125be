//! A configuration for each connection.

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use watm_runtime::{DialOptions, Listener, Relay};

use super::run_on_threads;
use crate::water::echo;
use watm_test_support::water::{Guest, numbers};
use watm_test_support::{LOCALHOST, run};

/// Reports its configuration, read in its handshake.
fn guest() -> Guest {
    Guest::v1()
        .with(r#"(data (i32.const 1024) "watm.cfg")"#)
        .init(
            "(call $tell (call $read (call $open (i32.const 3) (i32.const 1024) (i32.const 8))
                (i32.const 1040) (i32.const 8)))
            (call $tell (i32.load (i32.const 1040))) (i32.const 0)",
        )
        .work("")
}

#[test]
fn dials_at_once_have_each_their_own() {
    run_on_threads(async {
        let echo = echo().await.to_string();
        let dialer = guest().config(&[1]).dialer();
        let mut dials = JoinSet::new();
        for number in 0..40_i32 {
            let (dialer, echo) = (dialer.clone(), echo.clone());
            dials.spawn(async move {
                let options = DialOptions::new().config(number.to_le_bytes());
                let dialed = dialer.dial_with(&echo, options).await;
                let mut told = Vec::new();
                let mut connection = dialed.expect("connects");
                connection.read_to_end(&mut told).await.expect("the end");
                assert_eq!(numbers(&told), [4, number]);
            });
        }
        dials.join_all().await;
        // The dialer's own stays the same, and an empty one differs from none.
        for (options, expected) in [
            (DialOptions::new(), [1, 1]),
            (DialOptions::new().config(""), [0, 0]),
        ] {
            let dialed = dialer.dial_with(&echo, options).await;
            let mut told = Vec::new();
            let mut connection = dialed.expect("connects");
            connection.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), expected);
        }
    });
}

#[test]
fn a_listener_and_a_relay_have_theirs_for_each_connection() {
    run(async {
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        let guest = guest().config(&9_i32.to_le_bytes());
        let module = guest.module();
        let listener = guest.options(Listener::builder(&module));
        let listener = listener.bind(LOCALHOST).expect("listens");
        let relay = guest.options(Relay::builder(&module));
        let relay = relay.bind(LOCALHOST, &target).expect("listens");
        for _ in 0..3 {
            let _client = TcpStream::connect(listener.local_addr()).await;
            let mut accepted = listener.accept().await.expect("accepts");
            let mut told = Vec::new();
            accepted.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), [4, 9]);
            let client = TcpStream::connect(relay.local_addr()).await;
            let mut told = Vec::new();
            client
                .expect("connects")
                .read_to_end(&mut told)
                .await
                .expect("the end");
            assert_eq!(numbers(&told), [4, 9]);
        }
    });
}
