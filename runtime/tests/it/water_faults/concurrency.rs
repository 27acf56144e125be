//! Many connections at once, through all roles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use watm_runtime::{Dialer, Listener, Module, Relay};

use super::{our_plain, run_on_threads};
use crate::water::{echo, exchange, pattern, plain};
use watm_test_support::LOCALHOST;

const TASKS: usize = 16;
const ROUNDS: usize = 20;

/// Uses a connection: most to the end, some dropped in the middle.
async fn use_connection<S>(mut stream: S, number: usize)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let data = pattern(number * 517 % 20_000);
    match number % 4 {
        0 => {
            stream.write_all(&data).await.expect("written");
            stream
                .read_exact(&mut vec![0; data.len() / 2])
                .await
                .expect("read");
        }
        _ => exchange(stream, &data).await,
    }
}

async fn in_many_tasks<Connecting, S>(
    connect: impl Fn() -> Connecting + Clone + Send + Sync + 'static,
) where
    Connecting: Future<Output = S> + Send + 'static,
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (connect, done) = (connect.clone(), done.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                use_connection(connect().await, task * ROUNDS + round).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    // Panics of a task fail this test.
    tasks.join_all().await;
    assert_eq!(done.load(Ordering::Relaxed), TASKS * ROUNDS);
}

fn modules() -> [Module; 2] {
    [plain(), our_plain()]
}

#[test]
fn many_tasks_dial_and_close_through_one_dialer() {
    run_on_threads(async {
        let echo = echo().await.to_string();
        for module in modules() {
            let dialer = Dialer::builder(&module).build().expect("a dialer");
            let echo = echo.clone();
            in_many_tasks(move || {
                let (dialer, echo) = (dialer.clone(), echo.clone());
                async move { dialer.dial(&echo).await.expect("connects") }
            })
            .await;
        }
    });
}

#[test]
fn many_clients_come_to_one_listener() {
    run_on_threads(async {
        for module in modules() {
            let listener = Listener::builder(&module).bind(LOCALHOST).expect("listens");
            let address = listener.local_addr();
            let serve = tokio::spawn(async move {
                while let Ok(connection) = listener.accept().await {
                    tokio::spawn(async move {
                        let (mut reader, mut writer) = tokio::io::split(connection);
                        if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                            // The client may be gone already.
                            let _ = writer.shutdown().await;
                        }
                    });
                }
            });
            in_many_tasks(
                move || async move { TcpStream::connect(address).await.expect("connects") },
            )
            .await;
            serve.abort();
        }
    });
}

#[test]
fn many_clients_come_through_one_relay() {
    run_on_threads(async {
        let echo = echo().await.to_string();
        for module in modules() {
            let relay = Relay::builder(&module)
                .bind(LOCALHOST, &echo)
                .expect("listens");
            let address = relay.local_addr();
            in_many_tasks(
                move || async move { TcpStream::connect(address).await.expect("connects") },
            )
            .await;
            relay.close().await;
        }
    });
}
