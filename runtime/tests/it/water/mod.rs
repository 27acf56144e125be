//! WATER modules in their roles, over real sockets.

mod component;
mod dialer;
mod listener;
mod probation;
mod swap;

use std::net::SocketAddr;
use std::sync::OnceLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::Module;

use watm_test_support::{LOCALHOST, engine, repository};

/// Returns a module with every role of v1, which passes bytes on unchanged.
pub fn plain() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE
        .get_or_init(|| module("plain", watm_test_support::water::PLAIN))
        .clone()
}

/// Returns the project's own `plain`, as a component.
pub fn component() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load = || {
        let file = repository().join("watm/target/modules/plain.wasm");
        let bytes = std::fs::read(file).expect("`make modules` builds it");
        engine().load("plain", &bytes).expect("loads")
    };
    MODULE.get_or_init(load).clone()
}

/// Loads a module in the text format.
pub fn module(name: &str, text: &str) -> Module {
    let bytes = wat::parse_str(text).expect("valid text");
    engine().load(name, &bytes).expect("loads")
}

/// Starts a server that echoes, and ends when its client does.
pub async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(say_back(stream));
        }
    });
    address
}

async fn say_back(mut stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
        // The client may be gone already.
        let _ = writer.shutdown().await;
    }
}

/// Returns bytes in an order that reveals a missing or a repeated one.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64)
        .flat_map(|at| (at / 8).to_le_bytes().into_iter().nth(at as usize % 8))
        .collect()
}

/// Sends `data`, and checks its echo and the end.
pub async fn exchange<S>(stream: S, data: &[u8])
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let say = async {
        writer.write_all(data).await.expect("written");
        writer.shutdown().await.expect("shut down");
    };
    let mut heard = Vec::new();
    let hear = async { reader.read_to_end(&mut heard).await.expect("read") };
    both(say, hear).await;
    assert!(heard == data, "heard {} of {}", heard.len(), data.len());
}

/// Runs two futures side by side.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if first.is_none()
            && let std::task::Poll::Ready(output) = a.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let std::task::Poll::Ready(output) = b.as_mut().poll(cx)
        {
            second = Some(output);
        }
        match first.is_some() && second.is_some() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    (first.expect("done"), second.expect("done"))
}
