//! Isolation of the clients of a relay or a listener from each other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Limits, Listener, Relay, Target, Wire};

use crate::water::{echo, exchange, plain};
use watm_test_support::water::Guest;
use watm_test_support::{LOCALHOST, PATIENCE, engine, run};

#[test]
fn a_relay_goes_on_after_an_upstream_that_fails() {
    run(async {
        let echo = echo().await;
        let count = Arc::new(AtomicUsize::new(0));
        // Every second one.
        let connect = move |_: Target| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move {
                match number % 2 {
                    0 => Err(io::ErrorKind::ConnectionRefused.into()),
                    _ => TcpStream::connect(echo).await.map(Wire::tcp),
                }
            }
        };
        let relay = Relay::builder(&plain()).connector(connect);
        let relay = relay.bind(LOCALHOST, "example.com:80").expect("listens");
        for _ in 0..5 {
            let client = TcpStream::connect(relay.local_addr()).await;
            let mut client = client.expect("connects");
            assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
            let client = TcpStream::connect(relay.local_addr()).await;
            exchange(client.expect("connects"), b"hello").await;
        }
    });
}

#[test]
fn a_relay_goes_on_when_its_upstream_comes_back() {
    run(async {
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = upstream.local_addr().expect("bound");
        let relay = Relay::builder(&plain()).bind(LOCALHOST, &address.to_string());
        let relay = relay.expect("listens");
        drop(upstream);
        let mut client = TcpStream::connect(relay.local_addr())
            .await
            .expect("connects");
        assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
        let upstream = TcpListener::bind(address).await.expect("the same port");
        let mut client = TcpStream::connect(relay.local_addr())
            .await
            .expect("connects");
        let (mut far, _) = upstream.accept().await.expect("accepts");
        far.write_all(b"x").await.expect("written");
        assert_eq!(client.read(&mut [0; 1]).await.expect("a byte"), 1);
    });
}

/// Makes a module that waits for the client's first byte in its handshake, and traps if it is 255.
fn shy() -> watm_runtime::Module {
    let wait = |global: &str| {
        format!(
            "(global.set {global} (call $accept))
            (drop (call $read (global.get {global}) (i32.const 1024) (i32.const 1)))
            (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 255)) (then (unreachable)))"
        )
    };
    let text = Guest::v1()
        .work("(call $tell (i32.const 7))")
        .text()
        .replace("(global.set $net (call $accept))", &wait("$net"))
        .replace("(global.set $caller (call $accept))", &wait("$caller"));
    let bytes = wat::parse_str(text).expect("valid text");
    engine().load("shy", &bytes).expect("loads")
}

async fn connect(address: std::net::SocketAddr, first: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(address).await.expect("connects");
    client.write_all(first).await.expect("written");
    client
}

#[test]
fn a_client_that_says_nothing_holds_up_nobody_and_is_not_kept() {
    run(async {
        let echo = echo().await.to_string();
        let limits = Limits {
            handshake_timeout: Duration::from_millis(500),
            ..Limits::for_connections()
        };
        let listener = Listener::builder(&shy()).limits(limits.clone());
        let listener = listener.bind(LOCALHOST).expect("listens");
        let relay = Relay::builder(&shy()).limits(limits);
        let relay = relay.bind(LOCALHOST, &echo).expect("listens");
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.push(connect(listener.local_addr(), b"").await);
            silent.push(connect(relay.local_addr(), b"").await);
        }
        // Others come through meanwhile, and some of them trap.
        for first in [1, 255, 2, 255, 3] {
            let _client = connect(listener.local_addr(), &[first]).await;
            let mut relayed = connect(relay.local_addr(), &[first]).await;
            let mut told = Vec::new();
            relayed.read_to_end(&mut told).await.expect("the end");
            if first < 255 {
                let mut accepted = listener.accept().await.expect("accepts");
                let mut told = Vec::new();
                accepted.read_to_end(&mut told).await.expect("the end");
                assert_eq!(told, 7_i32.to_le_bytes());
            }
            assert_eq!(told.len(), if first < 255 { 4 } else { 0 });
        }
        for mut client in silent {
            assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
        }
    });
}

#[test]
fn connections_that_nobody_accepts_are_bounded_and_wait() {
    run(async {
        let limits = Limits {
            accept_backlog: 2,
            handshakes: 2,
            ..Limits::for_connections()
        };
        let listener = Listener::builder(&plain()).limits(limits);
        let listener = listener.bind(LOCALHOST).expect("listens");
        let mut clients = Vec::new();
        for number in 0..20 {
            clients.push(connect(listener.local_addr(), &[number]).await);
        }
        // All are served in the end, each with its own.
        let mut heard = Vec::new();
        for _ in 0..20 {
            let mut accepted = listener.accept().await.expect("accepts");
            let mut byte = [0];
            accepted.read_exact(&mut byte).await.expect("a byte");
            heard.push(byte[0]);
        }
        heard.sort_unstable();
        assert_eq!(heard, (0..20).collect::<Vec<u8>>());
    });
}

#[test]
fn a_relay_and_a_listener_that_are_gone_free_their_ports_and_accepted_connections_live_on() {
    run(async {
        let listener = Listener::builder(&plain())
            .bind(LOCALHOST)
            .expect("listens");
        let address = listener.local_addr();
        let client = connect(address, b"").await;
        let accepted = listener.accept().await.expect("accepts");
        drop(listener);
        // The task ends when the runtime gets to it.
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let say_back = async {
            let (mut reader, mut writer) = tokio::io::split(accepted);
            tokio::io::copy(&mut reader, &mut writer)
                .await
                .expect("copied");
            writer.shutdown().await.expect("shut down");
        };
        crate::water::both(exchange(client, b"hello"), say_back).await;

        let relay = Relay::builder(&plain()).bind(LOCALHOST, "127.0.0.1:9");
        let address = relay.expect("listens").local_addr();
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

/// Returns limits with which a connection ends soon after it is told to.
fn soon() -> Limits {
    Limits {
        close_grace: Duration::from_millis(50),
        cpu_per_call: Duration::from_secs(60),
        ..Limits::for_connections()
    }
}

async fn assert_ended(relay: &Relay) {
    let ended = async {
        while relay.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, ended).await;
    waited.expect("its connections end");
}

#[test]
fn a_module_that_has_closed_its_connections_does_not_live_on() {
    run(async {
        let echo = echo().await.to_string();
        for rest in [
            "(loop $for_ever (call $pause (i32.const 60000)) (br $for_ever))",
            "(loop $for_ever (br $for_ever))",
        ] {
            let guest = Guest::v1().limits(soon()).ends(&format!(
                "(drop (call $fd_close (global.get $net)))
                (drop (call $fd_close (global.get $caller))) {rest} (i32.const 0)"
            ));
            let relay = guest.options(Relay::builder(&guest.module()));
            let relay = relay.bind(LOCALHOST, &echo).expect("listens");
            for _ in 0..3 {
                let mut client = connect(relay.local_addr(), b"").await;
                assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
            }
            assert_ended(&relay).await;
        }
    });
}

#[test]
fn a_module_that_does_not_take_its_client_is_ended() {
    run(async {
        let echo = echo().await.to_string();
        let guest = Guest::v1().ends("(call $pause (i32.const 60000)) (i32.const 0)");
        let text = guest
            .text()
            .replace("(global.set $caller (call $accept))", "");
        let bytes = wat::parse_str(text).expect("valid text");
        let module = engine().load("absent", &bytes).expect("loads");
        let relay = Relay::builder(&module).bind(LOCALHOST, &echo);
        let relay = relay.expect("listens");
        let mut client = connect(relay.local_addr(), b"").await;
        let mut byte = [0; 1];
        let read = tokio::time::timeout(PATIENCE, client.read(&mut byte)).await;
        assert_eq!(read.expect("in time").expect("the end"), 0);
        assert_ended(&relay).await;
    });
}

#[test]
fn connections_of_a_relay_are_limited() {
    run(async {
        let echo = echo().await.to_string();
        let guest = Guest::v1().ends("(call $pause (i32.const 60000)) (i32.const 0)");
        let guest = guest.limits(Limits { flows: 2, ..soon() });
        let relay = guest.options(Relay::builder(&guest.module()));
        let relay = relay.bind(LOCALHOST, &echo).expect("listens");
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(relay.local_addr(), b"").await);
        }
        // Two of them are refused.
        let mut refused = 0;
        for client in &mut clients {
            let mut byte = [0; 1];
            let read = client.read(&mut byte);
            let waited = tokio::time::timeout(Duration::from_millis(300), read).await;
            refused += usize::from(waited.is_ok_and(|read| read.is_ok_and(|count| count == 0)));
        }
        assert_eq!(refused, 2);
        assert_eq!(relay.connections(), 2);
    });
}
