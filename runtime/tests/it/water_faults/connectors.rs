//! Streams in the place of TCP.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use watm_runtime::{Dialer, FixedDialer, Reach, Target, Wire};

use super::our_plain;
use crate::support::run;
use crate::water::{exchange, pattern, plain};

fn say_back(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(stream);
        if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
            // Gone already, if the other end was in a hurry.
            let _ = writer.shutdown().await;
        }
    });
}

#[test]
fn a_pipe_within_the_process_is_as_good_as_tcp() {
    run(async {
        for module in [plain(), our_plain()] {
            // As small as one byte.
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
        for module in [plain(), our_plain()] {
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
fn addresses_are_what_the_connector_says() {
    run(async {
        let [near, far] =
            ["192.0.2.1:1", "[2001:db8::1]:2"].map(|text| text.parse().expect("an address"));
        let dialer = Dialer::builder(&plain()).connector(move |_: Target| async move {
            Ok(Wire::stream(duplex(10).0).with_addresses(near, far))
        });
        let dialer = dialer.build().expect("a dialer");
        let connection = dialer.dial("example.com:443").await.expect("connects");
        assert_eq!(connection.local_addr().expect("known"), near);
        assert_eq!(connection.peer_addr().expect("known"), far);
    });
}

#[test]
fn a_connector_is_asked_for_the_name_and_only_for_what_may_be_reached() {
    run(async {
        let (sender, asked) = std::sync::mpsc::channel();
        let connect = move |target: Target| {
            sender.send(target.to_string()).expect("the test listens");
            async { Ok(Wire::stream(duplex(10).0)) }
        };
        let dialer = FixedDialer::builder(&plain())
            .config("secret.example.com:443")
            .connector(connect.clone());
        let refused = dialer.build().expect("a dialer").dial().await;
        assert!(refused.is_err());
        assert!(asked.try_recv().is_err());
        let reach = Reach::none().allow("*.example.com:443").expect("a pattern");
        let dialer = FixedDialer::builder(&plain())
            .config("secret.example.com:443")
            .reach(reach)
            .connector(connect);
        let dialer = dialer.build().expect("a dialer");
        dialer.dial().await.expect("connects");
        assert_eq!(asked.try_recv().as_deref(), Ok("secret.example.com:443"));
    });
}

#[test]
fn a_stream_that_fails_is_an_error_with_its_cause() {
    run(async {
        let dialer = Dialer::builder(&plain()).connector(|_: Target| async {
            Err(std::io::Error::other("the proxy wants a password"))
        });
        let dialer = dialer.build().expect("a dialer");
        let error = dialer.dial("example.com:443").await.expect_err("refused");
        assert_eq!(
            error.to_string(),
            "plain: the proxy wants a password (example.com:443)"
        );
        // And in the middle.
        let dialer = Dialer::builder(&plain()).connector(|_: Target| async {
            let broken = tokio_broken::Broken;
            Ok(Wire::stream(broken))
        });
        let dialer = dialer.build().expect("a dialer");
        let mut connection = dialer.dial("example.com:443").await.expect("connects");
        let error = connection.read(&mut [0; 1]).await.expect_err("broken");
        assert!(error.to_string().contains("bad record"), "{error}");
    });
}

mod tokio_broken {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// A stream of which every read fails.
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
