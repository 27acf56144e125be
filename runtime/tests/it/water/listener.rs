//! WATER modules as listeners and relays.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::{Error, Flow, Limits, Listener, Module, ModuleKind, Relay, Server};

use super::{both, component, echo, exchange, module, pattern, plain};
use watm_test_support::{LOCALHOST, run, serve};

#[test]
fn a_listener_passes_bytes_both_ways_and_the_end() {
    serves_all_lengths(&plain());
}

#[test]
fn a_component_listens_as_a_water_module_does() {
    serves_all_lengths(&component());
}

fn serves_all_lengths(module: &Module) {
    run(async {
        let listener = Listener::builder(module);
        let listener = listener.bind(LOCALHOST).expect("listens");
        for len in [0, 1, 1 << 20] {
            let client = TcpStream::connect(listener.local_addr());
            let (client, served) = both(client, listener.accept()).await;
            let (client, mut served) = (client.expect("connects"), served.expect("accepts"));
            let from = client.local_addr().expect("bound");
            assert_eq!(served.peer_addr().expect("known"), from);
            assert_eq!(served.info().source, from);
            let data = pattern(len);
            let say_back = async {
                let mut heard = Vec::new();
                served.read_to_end(&mut heard).await.expect("read");
                served.write_all(&heard).await.expect("written");
                served.shutdown().await.expect("shut down");
            };
            both(exchange(client, &data), say_back).await;
        }
    });
}

/// Makes a listener whose handshake is one byte from the client.
fn waits_for_a_byte() -> Module {
    module(
        "waits",
        r#"(module
            (import "env" "water_accept" (func $accept (result i32)))
            (import "wasi_snapshot_preview1" "fd_read"
              (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (func (export "watm_init_v1") (result i32) (i32.const 0))
            (func (export "watm_ctrlpipe_v1") (param i32) (result i32) (i32.const 0))
            (func (export "watm_accept_v1") (param i32) (result i32) (local $fd i32)
              (local.set $fd (call $accept))
              (i32.store (i32.const 0) (i32.const 64))
              (i32.store (i32.const 4) (i32.const 1))
              (drop (call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)))
              (if (i32.eqz (i32.load (i32.const 8))) (then (return (i32.const -64))))
              (local.get $fd))
            (func (export "watm_start_v1") (result i32) (i32.const 0)))"#,
    )
}

#[test]
fn a_client_that_says_nothing_holds_up_nobody() {
    run(async {
        let limits = Limits {
            handshake_timeout: Duration::from_millis(300),
            ..Limits::for_connections()
        };
        let listener = Listener::builder(&waits_for_a_byte()).limits(limits);
        let listener = listener.bind(LOCALHOST).expect("listens");
        let mut silent = TcpStream::connect(listener.local_addr())
            .await
            .expect("connects");
        let mut quick = TcpStream::connect(listener.local_addr())
            .await
            .expect("connects");
        quick.write_all(b"x").await.expect("written");
        let served = listener.accept().await.expect("accepts");
        let from = quick.local_addr().expect("bound");
        assert_eq!(served.peer_addr().expect("known"), from);
        // The wait ends at the limit.
        let begin = Instant::now();
        assert_eq!(silent.read(&mut [0; 1]).await.expect("the end"), 0);
        assert!(begin.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_listener_that_was_stopped_says_so_to_who_waits() {
    for module in [plain(), component()] {
        run(async {
            let listener = Listener::builder(&module);
            let listener = listener.bind(LOCALHOST).expect("listens");
            let (waited, stopped) = both(listener.accept(), listener.stop_accepting()).await;
            stopped.expect("stopped");
            assert!(matches!(waited, Err(Error::Closed { .. })), "{waited:?}");
            let again = listener.accept().await;
            assert!(matches!(again, Err(Error::Closed { .. })), "{again:?}");
        });
    }
}

/// Checks that a client sees the end of a connection of a relay. Connections through a component
/// share an instance, and are reset with it.
async fn hears_the_end(client: &mut TcpStream, module: &Module) {
    let heard = client.read(&mut [0; 1]).await;
    match module.info().kind {
        ModuleKind::Component => assert!(!heard.is_ok_and(|count| count > 0)),
        _ => assert_eq!(heard.expect("the end"), 0),
    }
}

#[test]
fn a_relay_passes_connections_on_and_ends_with_them() {
    passes_on(&plain());
}

#[test]
fn a_component_relays_as_a_water_module_does() {
    passes_on(&component());
}

fn passes_on(module: &Module) {
    run(async {
        let echo = echo().await;
        let relay = Relay::builder(module);
        let relay = relay.bind(LOCALHOST, &echo.to_string()).expect("listens");
        let mut clients = Vec::new();
        for len in [1, 1000, 1 << 20] {
            let client = TcpStream::connect(relay.local_addr()).await;
            exchange(client.expect("connects"), &pattern(len)).await;
            let mut held = TcpStream::connect(relay.local_addr())
                .await
                .expect("connects");
            held.write_all(b"x").await.expect("written");
            assert_eq!(held.read(&mut [0; 1]).await.expect("echo"), 1);
            clients.push(held);
        }
        assert!(relay.connections() >= clients.len());
        let (address, begin) = (relay.local_addr(), Instant::now());
        relay.close().await;
        assert!(begin.elapsed() < Duration::from_secs(3));
        for mut client in clients {
            hears_the_end(&mut client, module).await;
        }
        assert!(TcpStream::connect(address).await.is_err());
    });
}

#[test]
fn a_relay_lives_through_an_upstream_that_is_not_there() {
    lives_through_its_upstream(&plain());
    lives_through_its_upstream(&component());
}

fn lives_through_its_upstream(module: &Module) {
    run(async {
        let upstream = std::net::TcpListener::bind(LOCALHOST).expect("a port");
        let address = upstream.local_addr().expect("bound");
        drop(upstream);
        let relay = Relay::builder(module);
        let relay = relay
            .bind(LOCALHOST, &address.to_string())
            .expect("listens");
        for _ in 0..3 {
            let mut client = TcpStream::connect(relay.local_addr())
                .await
                .expect("connects");
            hears_the_end(&mut client, module).await;
        }
        let upstream = tokio::net::TcpListener::bind(address).await.expect("free");
        let mut client = TcpStream::connect(relay.local_addr())
            .await
            .expect("connects");
        let (mut far, _) = upstream.accept().await.expect("accepts");
        client.write_all(b"hello").await.expect("written");
        let mut heard = [0; 5];
        far.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"hello");
    });
}

#[test]
fn a_server_has_a_water_listener_behind_it() {
    let server = Server::builder(&plain())
        .name("water-server")
        .tcp("listen", LOCALHOST)
        .start()
        .expect("starts");
    run(async {
        let address = server.local_addr("listen").expect("granted");
        let client = TcpStream::connect(address).await.expect("connects");
        let Some(Flow::Stream(mut flow)) = server.accept().await else {
            panic!("no stream");
        };
        assert_eq!(flow.info().source, client.local_addr().expect("bound"));
        let data = pattern(300_000);
        let say_back = async {
            let mut heard = Vec::new();
            flow.read_to_end(&mut heard).await.expect("read");
            flow.write_all(&heard).await.expect("written");
            flow.shutdown().await.expect("shut down");
        };
        both(exchange(client, &data), say_back).await;
        server.reconfigure("other").expect("accepted");
        let status = server.status().expect("status");
        assert_eq!(status.counters["host.connections_accepted"], 1);

        let mut client = TcpStream::connect(address).await.expect("connects");
        let Some(Flow::Stream(flow)) = server.accept().await else {
            panic!("no stream");
        };
        server.close();
        server.wait_closed().await;
        drop(flow);
        // The end, or a reset.
        assert!(!matches!(client.read(&mut [0; 1]).await, Ok(1)));
    });
}

#[test]
fn a_server_dials_through_a_water_module() {
    let server = Server::builder(&plain()).start().expect("starts");
    run(async {
        let echo = echo().await;
        let destination = watm_runtime::Destination::Address(echo);
        let flow = server.dial(Some(destination)).await.expect("connects");
        exchange(flow, &pattern(1000)).await;
    });
}

#[test]
fn a_server_says_which_socket_a_water_module_can_use() {
    let refused = Server::builder(&plain()).udp("listen", LOCALHOST).start();
    let Err(error @ Error::Options(_)) = refused else {
        panic!("started");
    };
    assert!(error.to_string().contains("a TCP listener"), "{error}");
    drop(serve("still-fine"));
}

/// Makes a listener whose worker has the handshake: one byte from the client. It refuses an `x`;
/// with `y` after it, it sends the client a `z` before. Otherwise it passes the byte on to the
/// application.
fn judges_a_byte() -> Module {
    module(
        "judges",
        r#"(module
            (import "env" "water_accept" (func $accept (result i32)))
            (import "wasi_snapshot_preview1" "fd_read"
              (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write"
              (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "sock_shutdown"
              (func $shutdown (param i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 80) "no such letter\nz")
            (global $client (mut i32) (i32.const 0))
            (global $caller (mut i32) (i32.const 0))
            (func $slice (param i32 i32)
              (i32.store (i32.const 0) (local.get 0))
              (i32.store (i32.const 4) (local.get 1)))
            (func $write (param i32 i32 i32)
              (call $slice (local.get 1) (local.get 2))
              (drop (call $fd_write (local.get 0) (i32.const 0) (i32.const 1) (i32.const 8))))
            (func (export "watm_init_v1") (result i32) (i32.const 0))
            (func (export "watm_ctrlpipe_v1") (param i32) (result i32) (i32.const 0))
            (func (export "watm_accept_v1") (param i32) (result i32)
              (global.set $caller (local.get 0))
              (global.set $client (call $accept))
              (global.get $client))
            (func (export "watm_start_v1") (result i32)
              (call $slice (i32.const 64) (i32.const 2))
              (drop (call $fd_read (global.get $client) (i32.const 0) (i32.const 1) (i32.const 8)))
              (if (i32.eq (i32.load8_u (i32.const 64)) (i32.const 120)) (then
                (call $write (i32.const 2) (i32.const 80) (i32.const 15))
                (if (i32.eq (i32.load8_u (i32.const 65)) (i32.const 121)) (then
                  (call $write (global.get $client) (i32.const 95) (i32.const 1))
                  (drop (call $shutdown (global.get $client) (i32.const 2)))))
                (return (i32.const -65))))
              (call $write (global.get $caller) (i32.const 64) (i32.const 1))
              (i32.const -64)))"#,
    )
}

#[test]
fn a_connection_is_the_applications_once_its_handshake_is_over() {
    run(async {
        let listener = Listener::builder(&judges_a_byte());
        let listener = listener.bind(LOCALHOST).expect("listens");
        let connect = async || TcpStream::connect(listener.local_addr()).await;
        let _silent = connect().await.expect("connects");
        let mut refused = connect().await.expect("connects");
        refused.write_all(b"x").await.expect("written");
        let heard = refused.read(&mut [0; 1]).await.map_err(|e| e.kind());
        assert_eq!(heard, Err(ErrorKind::ConnectionReset));
        let mut taken = connect().await.expect("connects");
        taken.write_all(b"a").await.expect("written");
        let mut served = listener.accept().await.expect("accepts");
        let from = taken.local_addr().expect("bound");
        assert_eq!(served.peer_addr().expect("known"), from);
        let mut said = [0];
        served.read_exact(&mut said).await.expect("read");
        assert_eq!(&said, b"a");
    });
}

#[test]
fn what_a_module_says_last_is_read_by_a_client_that_still_sends() {
    run(async {
        let listener = Listener::builder(&judges_a_byte());
        let listener = listener.bind(LOCALHOST).expect("listens");
        for _ in 0..5 {
            let mut client = TcpStream::connect(listener.local_addr())
                .await
                .expect("connects");
            client.write_all(b"xy").await.expect("written");
            for _ in 0..50 {
                client.write_all(&[0; 4096]).await.expect("written");
                tokio::task::yield_now().await;
            }
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.expect("no reset");
            assert_eq!(heard, b"z");
        }
    });
}

#[test]
fn a_module_that_would_take_nobody_says_so_before() {
    let refuses = |early: &str| {
        let text = format!(
            r#"(module
                (import "env" "water_accept" (func $accept (result i32)))
                (memory (export "memory") 1)
                (func (export "watm_init_v1") (result i32) (i32.const 0))
                (func (export "watm_ctrlpipe_v1") (param i32) (result i32) (i32.const 0))
                (func (export "watm_accept_v1") (param i32) (result i32)
                  {early}
                  (drop (call $accept))
                  (i32.const -28))
                (func (export "watm_start_v1") (result i32) (i32.const 0)))"#
        );
        run(async move {
            let listener = Listener::builder(&module("refuses", &text));
            let listener = listener.bind(LOCALHOST).expect("listens");
            listener.check_config().await
        })
    };
    let refused = refuses("(if (i32.const 1) (then (return (i32.const -28))))");
    let error = refused.expect_err("nobody is taken").to_string();
    assert!(error.contains("watm_accept_v1 returned -28"), "{error}");
    // A check has no clients to accept, which the module does not know.
    refuses("").expect("no client was refused");
}
