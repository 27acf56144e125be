//! The probation of a module after a swap.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::{
    Connection, Dialer, Error, FixedDialer, Listener, Module, Reach, Relay, Server, SwapOptions,
};

use super::{both, echo, plain};
use watm_test_support::water::Guest;
use watm_test_support::{LOCALHOST, PATIENCE, run};

/// Returns modules that accept their configuration, and fail with their first connection.
fn failing() -> [Module; 2] {
    let panics = Guest::v1().ends("(unreachable)");
    let exits = Guest::v1().ends("(call $proc_exit (i32.const 2)) (i32.const 0)");
    [panics.module(), exits.module()]
}

/// Checks that the swap failed, and that its error names the failed module.
fn assert_taken_back(swapped: Result<(), Error>, failed: &Module) {
    match swapped {
        Err(Error::Swap { module, reason }) => {
            assert_eq!(module, failed.name());
            assert!(reason.contains("rolled back: "), "{reason}");
            let expected = ["unreachable", "proc_exit(2)", "failed with", "returned"];
            assert!(expected.iter().any(|e| reason.contains(e)), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// Returns true if the bytes sent on it come back: the good module runs.
async fn answers(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> bool {
    let mut answer = [0; 3];
    stream.write_all(b"abc").await.is_ok() && stream.read_exact(&mut answer).await.is_ok()
}

/// Connects a client. Returns `None` if the module has refused it by a reset that came early.
async fn connect(address: SocketAddr) -> Option<TcpStream> {
    match TcpStream::connect(address).await {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        connected => Some(connected.expect("connects")),
    }
}

/// Accepts a client's connection. Returns `None` if the module has refused the client.
async fn accept(listener: &Listener, client: &mut TcpStream) -> Option<Connection> {
    let mut heard = [0; 1];
    tokio::select! {
        biased;
        accepted = listener.accept() => Some(accepted.expect("one")),
        _ = client.read(&mut heard) => None,
    }
}

/// Swaps while `attempt` runs repeatedly, and a last time once the swap is over.
async fn swap_under_use<Trying>(
    swap: impl Future<Output = Result<(), Error>>,
    attempt: impl Fn() -> Trying,
) -> Result<(), Error>
where
    Trying: Future<Output = bool>,
{
    let over = std::cell::Cell::new(false);
    let swap = async {
        let swapped = swap.await;
        over.set(true);
        swapped
    };
    let using = async {
        while !over.get() {
            attempt().await;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(attempt().await, "the module before serves");
    };
    let (swapped, ()) = both(swap, using).await;
    swapped
}

#[test]
fn a_dialer_s_module_that_fails_at_once_is_taken_back() {
    run(async {
        let address = echo().await.to_string();
        let refusing = Guest::v1().connect("(i32.const -28)").module();
        let giving_up = Guest::v1().ends("(i32.const -8)").module();
        for failed in failing().into_iter().chain([refusing, giving_up]) {
            let dialer = Dialer::builder(&plain()).build().expect("builds");
            let swapped = swap_under_use(dialer.swap(&failed), async || {
                match dialer.dial(&address).await {
                    Ok(connection) => answers(connection).await,
                    Err(_) => false,
                }
            });
            assert_taken_back(swapped.await, &failed);
        }
    });
}

#[test]
fn a_fixed_dialer_s_module_that_fails_at_once_is_taken_back() {
    run(async {
        let address = echo().await.to_string();
        for failed in failing() {
            let dialer = FixedDialer::builder(&plain())
                .config(address.clone())
                .reach(Reach::none().allow(&address).expect("a pattern"))
                .build()
                .expect("builds");
            let swapped =
                swap_under_use(dialer.swap(&failed), async || match dialer.dial().await {
                    Ok(connection) => answers(connection).await,
                    Err(_) => false,
                });
            // This guest has no address of its own to dial, which counts as its own fault.
            assert_taken_back(swapped.await, &failed);
        }
    });
}

#[test]
fn a_listener_s_module_that_fails_at_once_is_taken_back() {
    run(async {
        for failed in failing() {
            let listener = Listener::builder(&plain())
                .bind(LOCALHOST)
                .expect("listens");
            let swapped = swap_under_use(listener.swap(&failed), async || {
                let Some(mut client) = connect(listener.local_addr()).await else {
                    return false;
                };
                let Some(mut served) = accept(&listener, &mut client).await else {
                    return false;
                };
                client.write_all(b"abc").await.expect("written");
                let mut heard = [0; 3];
                served.read_exact(&mut heard).await.is_ok()
            });
            assert_taken_back(swapped.await, &failed);
        }
    });
}

#[test]
fn a_relay_s_module_that_fails_at_once_is_taken_back() {
    run(async {
        let address = echo().await.to_string();
        for failed in failing() {
            let relay = Relay::builder(&plain()).bind(LOCALHOST, &address);
            let relay = relay.expect("listens");
            let swapped = swap_under_use(relay.swap(&failed), async || {
                match connect(relay.local_addr()).await {
                    Some(client) => answers(client).await,
                    None => false,
                }
            });
            assert_taken_back(swapped.await, &failed);
            relay.close().await;
        }
    });
}

#[test]
fn a_server_s_module_that_fails_at_once_is_taken_back() {
    run(async {
        let server = Server::builder(&plain()).tcp("listen", LOCALHOST);
        let server = server.start().expect("starts");
        let address = server.local_addr("listen").expect("granted");
        let options = || SwapOptions {
            probation: PATIENCE,
            ..SwapOptions::default()
        };
        let [failed, _] = failing();
        let swap = async { server.swap_async(&failed, options()).await.map(drop) };
        let using = async {
            let at_once = || server.swap_async(&failed, options());
            // Only one at a time, and no new configuration meanwhile.
            while server.status_async().await.expect("answered").generation == 0 {}
            let busy = at_once().await.expect_err("refused");
            assert!(matches!(busy, Error::Busy { .. }), "{busy:?}");
            let busy = server.reconfigure(b"x".to_vec());
            assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
            if let Some(mut client) = connect(address).await {
                assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
            }
        };
        let (swapped, ()) = both(swap, using).await;
        assert_taken_back(swapped, &failed);
        assert_eq!(server.status_async().await.expect("answered").generation, 0);
        // Each number is used once.
        let again = SwapOptions {
            probation: std::time::Duration::ZERO,
            ..SwapOptions::default()
        };
        let swapped = server.swap_async(&plain(), again).await;
        assert_eq!(swapped.expect("swapped"), 2);
    });
}

/// Tests that records caused by strangers, and the fate of connections, do not count.
#[test]
fn strangers_do_not_say_which_module_runs() {
    run(async {
        let listener = Listener::builder(&plain())
            .bind(LOCALHOST)
            .expect("listens");
        // As if by a client that does not know the protocol.
        let refusing = Guest::v1().ends("(i32.const -8)").module();
        let swap = listener.swap(&refusing);
        let using = async {
            for _ in 0..3 {
                if let Some(mut client) = connect(listener.local_addr()).await {
                    assert!(accept(&listener, &mut client).await.is_none());
                }
            }
        };
        let (swapped, ()) = both(swap, using).await;
        swapped.expect("swapped");
        // A connection that its other end resets.
        let good = plain();
        let swap = listener.swap(&good);
        let using = async {
            for _ in 0..3 {
                let client = TcpStream::connect(listener.local_addr());
                let (client, served) = both(client, listener.accept()).await;
                let client = client.expect("connects");
                client.set_zero_linger().expect("set");
                drop(client);
                let heard = served.expect("one").read(&mut [0; 1]).await;
                assert!(heard.is_err() || heard.is_ok_and(|len| len == 0));
            }
        };
        let (swapped, ()) = both(swap, using).await;
        swapped.expect("swapped");
    });
}
