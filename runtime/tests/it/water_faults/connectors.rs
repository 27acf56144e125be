//! Streams in place of TCP.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use watm_runtime::{Dialer, Error, FixedDialer, Reach, Relay, Target, Wire};

use super::our_plain;
use crate::water::{component, exchange, pattern, plain};
use watm_test_support::{LOCALHOST, run};

fn say_back(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(stream);
        if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
            // The other end may be gone already.
            let _ = writer.shutdown().await;
        }
    });
}

#[test]
fn a_pipe_within_the_process_is_as_good_as_tcp() {
    run(async {
        for module in [plain(), our_plain(), component()] {
            // Buffers as small as one byte.
            for capacity in [1, 100, 65_536] {
                let dialer = Dialer::builder(&module).connector(move |_: Target| async move {
                    let (near, far) = duplex(capacity);
                    say_back(far);
                    Ok(Wire::stream(near))
                });
                let dialer = dialer.build().expect("a dialer");
                let connection = dialer.dial("example.com:443").await.expect("connects");
                assert!(connection.peer_addr().is_err());
                exchange(connection, &pattern(capacity.min(500) * 300)).await;
            }
        }
    });
}

#[cfg(unix)]
#[test]
fn a_unix_stream_is_as_good_as_tcp() {
    run(async {
        for module in [plain(), our_plain(), component()] {
            let dialer = Dialer::builder(&module).connector(|_: Target| async {
                let (near, far) = tokio::net::UnixStream::pair()?;
                say_back(far);
                Ok(Wire::stream(near))
            });
            let dialer = dialer.build().expect("a dialer");
            let connection = dialer.dial("example.com:443").await.expect("connects");
            exchange(connection, &pattern(3 << 20)).await;
        }
    });
}

#[test]
fn a_connection_of_tcp_may_come_from_anywhere() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                say_back(stream);
            }
        });
        for module in [plain(), component()] {
            let dialer = Dialer::builder(&module).connector(move |_: Target| async move {
                TcpStream::connect(address).await.map(Wire::from)
            });
            let dialer = dialer.build().expect("a dialer");
            let connection = dialer.dial("example.com:443").await.expect("connects");
            assert_eq!(connection.peer_addr().expect("known"), address);
            exchange(connection, &pattern(3 << 20)).await;
        }
    });
}

#[test]
fn a_relay_goes_on_by_its_connector() {
    run(async {
        for module in [plain(), component()] {
            let relay = Relay::builder(&module).connector(|target: Target| async move {
                assert_eq!(target.to_string(), "example.com:443");
                let (near, far) = duplex(1000);
                say_back(far);
                Ok(Wire::stream(near))
            });
            let relay = relay.bind(LOCALHOST, "example.com:443").expect("listens");
            let client = TcpStream::connect(relay.local_addr()).await;
            exchange(client.expect("connects"), &pattern(30_000)).await;
        }
    });
}

#[test]
fn addresses_are_what_the_connector_says() {
    run(async {
        let [near, far] =
            ["192.0.2.1:1", "[2001:db8::1]:2"].map(|text| text.parse().expect("an address"));
        for module in [plain(), component()] {
            let dialer = Dialer::builder(&module).connector(move |_: Target| async move {
                Ok(Wire::stream(duplex(10).0).with_addresses(near, far))
            });
            let dialer = dialer.build().expect("a dialer");
            let connection = dialer.dial("example.com:443").await.expect("connects");
            assert_eq!(connection.local_addr().expect("known"), near);
            assert_eq!(connection.peer_addr().expect("known"), far);
        }
    });
}

#[test]
fn a_connector_is_asked_for_the_name_and_only_for_what_may_be_reached() {
    run(async {
        for (module, config) in [
            (plain(), "secret.example.com:443"),
            (component(), "remote = \"secret.example.com:443\""),
        ] {
            let (sender, asked) = std::sync::mpsc::channel();
            let connect = move |target: Target| {
                sender.send(target.to_string()).expect("the test listens");
                async { Ok(Wire::stream(duplex(10).0)) }
            };
            let dialer = || FixedDialer::builder(&module).config(config);
            let refused = dialer().connector(connect.clone()).build();
            let refused = refused.expect("a dialer").dial().await;
            assert!(matches!(refused, Err(Error::Denied { .. })), "{refused:?}");
            assert!(asked.try_recv().is_err());
            let reach = Reach::none().allow("*.example.com:443").expect("a pattern");
            let dialer = dialer().reach(reach).connector(connect);
            let dialer = dialer.build().expect("a dialer");
            dialer.dial().await.expect("connects");
            assert_eq!(asked.try_recv().as_deref(), Ok("secret.example.com:443"));
        }
    });
}

#[test]
fn a_stream_that_fails_is_an_error_with_its_cause() {
    run(async {
        for module in [plain(), component()] {
            let dialer = Dialer::builder(&module).connector(|_: Target| async {
                Err(std::io::Error::other("the proxy wants a password"))
            });
            let dialer = dialer.build().expect("a dialer");
            let error = dialer.dial("example.com:443").await.expect_err("refused");
            assert_eq!(
                error.to_string(),
                "plain: the proxy wants a password (example.com:443)"
            );
            // The same in the middle.
            let dialer = Dialer::builder(&module).connector(|_: Target| async {
                let broken = tokio_broken::Broken;
                Ok(Wire::stream(broken))
            });
            let dialer = dialer.build().expect("a dialer");
            let mut connection = dialer.dial("example.com:443").await.expect("connects");
            let error = connection.read(&mut [0; 1]).await.expect_err("broken");
            assert!(error.to_string().contains("bad record"), "{error}");
        }
    });
}

#[test]
fn a_connector_that_makes_no_stream_for_a_component_is_an_error() {
    run(async {
        for (connect, expected) in [
            (
                Connecting::Datagrams,
                "plain: the connector returned datagrams; must be a stream \
                 (example.com:443)",
            ),
            (
                Connecting::Panic,
                "plain: the connector panicked (example.com:443)",
            ),
        ] {
            let dialer = Dialer::builder(&component()).connector(move |_: Target| async move {
                match connect {
                    Connecting::Datagrams => UdpSocket::bind(LOCALHOST).await.map(Wire::udp),
                    Connecting::Panic => panic!("on purpose"),
                }
            });
            let dialer = dialer.build().expect("a dialer");
            for _ in 0..2 {
                let error = dialer.dial("example.com:443").await.expect_err("refused");
                assert_eq!(error.to_string(), expected);
            }
        }
    });
}

#[derive(Clone, Copy)]
enum Connecting {
    Datagrams,
    Panic,
}

#[test]
fn what_a_connector_makes_for_a_component_runs_in_the_runtime_of_the_dial() {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        runtime.expect("a runtime")
    };
    let (own, other) = (runtime(), runtime());
    let (sender, connected_in) = std::sync::mpsc::channel();
    let dialer = Dialer::builder(&component()).connector(move |_: Target| {
        let sender = sender.clone();
        async move {
            let id = tokio::runtime::Handle::current().id();
            sender.send(id).expect("the test listens");
            let (near, far) = duplex(100);
            say_back(far);
            Ok(Wire::stream(near))
        }
    });
    let dialer = dialer.build().expect("a dialer");
    let dial =
        |runtime: &tokio::runtime::Runtime| runtime.block_on(dialer.dial("a:1")).expect("connects");
    let (mut lost, kept) = (dial(&own), dial(&other));
    let expected = [own.handle().id(), other.handle().id()];
    assert_eq!(connected_in.try_iter().collect::<Vec<_>>(), expected);
    // Without its runtime the stream is lost, which is not its end.
    own.shutdown_background();
    let read = other.block_on(async { lost.read(&mut [0; 1]).await });
    let error = read.expect_err("lost").to_string();
    assert!(error.contains("reset"), "{error}");
    other.block_on(exchange(kept, &pattern(1000)));
}

mod tokio_broken {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// A stream whose reads all fail.
    pub struct Broken;

    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::Error::other("bad record")))
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(data.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
