//! Swaps of WATER modules in every role.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use watm_runtime::{
    Connection, Dialer, Error, FixedDialer, Listener, Module, Relay, Server, SwapOptions,
};

use super::{both, echo};
use watm_test_support::{LOCALHOST, accept_stream, engine, read, repository, run};

/// The time limit for connections that must end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Loads a stream transport of `watm/`, in one of its two shapes.
fn shipped(file: &str) -> Module {
    let folder = repository().join("watm/target/modules");
    let loaded = engine().load_file(folder.join(file));
    loaded.unwrap_or_else(|error| panic!("{error}; `make modules` builds it"))
}

/// Returns the other end's view of these bytes.
async fn said(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> Vec<u8> {
    stream.write_all(b"abc").await.expect("written");
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).await.expect("read");
    answer.to_vec()
}

/// Both shapes of two modules: later connections use the new module, and open ones stay with the
/// old one.
const SHAPES: [(&str, &str); 2] = [
    ("plain.watm1.wasm", "reverse.watm1.wasm"),
    ("plain.wasm", "reverse.wasm"),
];

#[test]
fn a_dialer_is_swapped_between_two_dials() {
    for (before, after) in SHAPES {
        run(async {
            let address = echo().await.to_string();
            let config = format!("remote = \"{address}\"");
            let dialer = Dialer::builder(&shipped(before)).config(config).build();
            let dialer = dialer.expect("builds");
            let mut old = dialer.dial(&address).await.expect("dials");
            assert_eq!(said(&mut old).await, b"abc");
            dialer.swap(&shipped(after)).await.expect("swapped");
            let mut new = dialer.dial(&address).await.expect("dials");
            // There and back: only the other end sees the difference.
            assert_eq!(said(&mut new).await, b"abc");
            assert_eq!(said(&mut old).await, b"abc");
            let other = if before == SHAPES[0].0 {
                SHAPES[1].1
            } else {
                SHAPES[0].1
            };
            let error = dialer.swap(&shipped(other)).await.expect_err("refused");
            assert!(matches!(error, Error::Swap { .. }), "{error}");
        });
    }
}

async fn accepted(listener: &Listener) -> (TcpStream, Connection) {
    let client = TcpStream::connect(listener.local_addr());
    let (client, served) = both(client, listener.accept()).await;
    (client.expect("connects"), served.expect("accepts"))
}

#[test]
fn a_listener_s_connections_stay_with_the_module_that_accepted_them() {
    for (before, after) in SHAPES {
        run(async {
            let listener = Listener::builder(&shipped(before))
                .bind(LOCALHOST)
                .expect("listens");
            let mut old = accepted(&listener).await;
            listener.swap(&shipped(after)).await.expect("swapped");
            let mut new = accepted(&listener).await;
            for ((client, served), expected) in [(&mut old, b"abc"), (&mut new, b"cba")] {
                client.write_all(b"abc").await.expect("written");
                let mut heard = [0; 3];
                served.read_exact(&mut heard).await.expect("read");
                assert_eq!(&heard, expected, "{before}");
            }
        });
    }
}

#[test]
fn what_is_open_ends_at_the_deadline_of_its_role() {
    for (before, after) in SHAPES {
        run(async {
            let listener = Listener::builder(&shipped(before))
                .drain(Duration::from_millis(100))
                .bind(LOCALHOST)
                .expect("listens");
            let (mut client, mut served) = accepted(&listener).await;
            listener.swap(&shipped(after)).await.expect("swapped");
            let ended = timeout(PATIENCE, served.read(&mut [0; 3])).await;
            // It was cut off, and not ended by its client.
            assert!(ended.expect("in time").is_err(), "{before}");
            let heard = timeout(PATIENCE, client.read(&mut [0; 3])).await;
            assert!(
                matches!(heard.expect("in time"), Ok(0) | Err(_)),
                "{before}"
            );
            let (mut client, mut served) = accepted(&listener).await;
            client.write_all(b"abc").await.expect("written");
            let mut heard = [0; 3];
            served.read_exact(&mut heard).await.expect("read");
            assert_eq!(&heard, b"cba", "{before}");
        });
    }
}

#[test]
fn a_relay_goes_on_by_another_module() {
    for (before, after) in SHAPES {
        run(async {
            let address = echo().await.to_string();
            let relay = Relay::builder(&shipped(before))
                .bind(LOCALHOST, &address)
                .expect("listens");
            let connect = || TcpStream::connect(relay.local_addr());
            let mut old = connect().await.expect("connects");
            assert_eq!(said(&mut old).await, b"abc");
            relay.swap(&shipped(after)).await.expect("swapped");
            let mut new = connect().await.expect("connects");
            assert_eq!(said(&mut new).await, b"abc");
            assert_eq!(said(&mut old).await, b"abc");
            relay.close().await;
        });
    }
}

#[test]
fn a_module_without_the_role_or_that_refuses_the_configuration_changes_nothing() {
    run(async {
        let address = echo().await.to_string();
        let config = format!("remote = \"{address}\"");
        let allowed = watm_runtime::Reach::none()
            .allow(&address)
            .expect("a pattern");
        let dialer = FixedDialer::builder(&shipped("plain.watm1.wasm"))
            .config(config)
            .reach(allowed)
            .build()
            .expect("builds");
        // A WireGuard configuration does not fit.
        let error = dialer
            .swap(&shipped("wireguard.watm1.wasm"))
            .await
            .expect_err("refused");
        let error = error.to_string();
        assert!(
            error.contains("wireguard.watm1.wasm: configuration refused"),
            "{error}"
        );
        assert!(error.contains("begin with [Interface]"), "{error}");
        assert_eq!(said(&mut dialer.dial().await.expect("dials")).await, b"abc");
    });
}

#[test]
fn a_server_of_a_water_module_is_swapped_too() {
    run(async {
        let server = Server::builder(&shipped("plain.watm1.wasm")).tcp("listen", LOCALHOST);
        let server = server.start().expect("starts");
        let address = server.local_addr("listen").expect("granted");
        let mut old = TcpStream::connect(address).await.expect("connects");
        let first = accept_stream(&server).await;
        let reverse = shipped("reverse.watm1.wasm");
        let swapped = server.swap_async(&reverse, SwapOptions::default()).await;
        assert_eq!(swapped.expect("swapped"), 1);
        let mut new = TcpStream::connect(address).await.expect("connects");
        let second = accept_stream(&server).await;
        for (client, flow, expected) in [(&mut old, &first, b"abc"), (&mut new, &second, b"cba")] {
            client.write_all(b"abc").await.expect("written");
            assert_eq!(read(flow).await.expect("read"), expected);
        }
        assert_eq!(server.status_async().await.expect("answered").generation, 1);
        // Connections of the previous module have this long.
        let options = SwapOptions {
            drain: Some(Duration::from_millis(50)),
            probation: Duration::ZERO,
            ..SwapOptions::default()
        };
        let swapped = server.swap_async(&reverse, options).await;
        assert_eq!(swapped.expect("swapped"), 2);
        let error = read(&second).await.expect_err("reset");
        assert!(error.to_string().contains("drain deadline"), "{error}");
        let mut last = TcpStream::connect(address).await.expect("connects");
        let third = accept_stream(&server).await;
        last.write_all(b"abc").await.expect("written");
        assert_eq!(read(&third).await.expect("read"), b"cba");
        let component = shipped("plain.wasm");
        let error = server
            .swap_async(&component, SwapOptions::default())
            .await
            .expect_err("refused");
        assert!(matches!(error, Error::Swap { .. }), "{error}");
    });
}
