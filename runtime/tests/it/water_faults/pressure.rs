//! Receivers that do not keep up, and directions that end one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Connection, Dialer, Listener, Module, Relay};

use super::{our_plain, run_on_threads};
use crate::water::{pattern, plain};
use watm_test_support::LOCALHOST;

const MUCH: usize = 32 << 20;
/// The bytes that the system and the runtime may hold for a receiver that reads nothing: buffers of
/// a loopback connection grow to 6 MiB and 4 MiB.
const HELD: usize = 16 << 20;

/// Returns both ends of a connection through a module.
async fn ends(module: &Module) -> (Connection, TcpStream) {
    let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let dialer = Dialer::builder(module).build().expect("a dialer");
    let near = dialer.dial(&address).await.expect("connects");
    let (far, _) = listener.accept().await.expect("accepts");
    (near, far)
}

/// Sends much to `receiver`, which begins to read when nothing more can be written.
async fn stall<S, R>(mut sender: S, mut receiver: R, data: &Arc<Vec<u8>>)
where
    S: AsyncWrite + Unpin + Send + 'static,
    R: AsyncRead + Unpin,
{
    let sent = Arc::new(AtomicUsize::new(0));
    let (count, all) = (sent.clone(), data.clone());
    let sending = tokio::spawn(async move {
        for piece in all.chunks(10_000) {
            sender.write_all(piece).await.expect("written");
            count.fetch_add(piece.len(), Ordering::Relaxed);
        }
        sender.shutdown().await.expect("shut down");
        sender
    });
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(before < HELD, "{before} bytes are held");
    let mut heard = Vec::with_capacity(data.len());
    receiver.read_to_end(&mut heard).await.expect("the end");
    assert!(heard == **data, "heard {}", heard.len());
    sending.await.expect("sent");
}

#[test]
fn a_receiver_that_stalls_holds_up_the_sender_and_loses_nothing() {
    run_on_threads(async {
        let data = Arc::new(pattern(MUCH));
        for module in [plain(), our_plain()] {
            let (near, far) = ends(&module).await;
            stall(near, far, &data).await;
            let (near, far) = ends(&module).await;
            stall(far, near, &data).await;
        }
    });
}

#[test]
fn a_client_of_a_relay_that_stalls_holds_up_the_other_end_and_loses_nothing() {
    run_on_threads(async {
        let data = Arc::new(pattern(MUCH));
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        let relay = Relay::builder(&our_plain()).bind(LOCALHOST, &target);
        let relay = relay.expect("listens");
        let client = TcpStream::connect(relay.local_addr()).await;
        let (far, _) = upstream.accept().await.expect("accepts");
        stall(far, client.expect("connects"), &data).await;
    });
}

/// Checks that the near end's bytes still arrive after the far end has ended.
async fn half_close<N, F>(mut near: N, mut far: F)
where
    N: AsyncRead + AsyncWrite + Unpin,
    F: AsyncRead + AsyncWrite + Unpin,
{
    far.write_all(b"all I say").await.expect("written");
    far.shutdown().await.expect("shut down");
    let mut heard = Vec::new();
    near.read_to_end(&mut heard).await.expect("the end");
    assert_eq!(heard, b"all I say");
    let answer = pattern(100_000);
    for piece in answer.chunks(1000) {
        near.write_all(piece).await.expect("written");
    }
    near.shutdown().await.expect("shut down");
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).await.expect("the end");
    assert!(heard == answer, "heard {}", heard.len());
}

#[test]
fn each_direction_of_our_module_ends_by_itself_in_every_role() {
    run_on_threads(async {
        let module = our_plain();
        let (near, far) = ends(&module).await;
        half_close(near, far).await;
        let (near, far) = ends(&module).await;
        half_close(far, near).await;

        let listener = Listener::builder(&module).bind(LOCALHOST).expect("listens");
        for near_first in [true, false] {
            let client = TcpStream::connect(listener.local_addr()).await;
            let client = client.expect("connects");
            let accepted = listener.accept().await.expect("accepts");
            match near_first {
                true => half_close(client, accepted).await,
                false => half_close(accepted, client).await,
            }
        }

        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        let relay = Relay::builder(&module)
            .bind(LOCALHOST, &target)
            .expect("listens");
        for near_first in [true, false] {
            let client = TcpStream::connect(relay.local_addr()).await;
            let client = client.expect("connects");
            let (far, _) = upstream.accept().await.expect("accepts");
            match near_first {
                true => half_close(client, far).await,
                false => half_close(far, client).await,
            }
        }
    });
}
