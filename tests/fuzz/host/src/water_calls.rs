//! Host calls of a WATER module.

use std::cell::RefCell;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use watm_runtime::{Connection, Listener, Module};

use crate::guests::{self, AT_MOST, LOCALHOST, PATIENCE, World};
use crate::load;

/// The most bytes that a client sends at once.
const MOST_SAID: usize = 100_000;

static MODULE: LazyLock<Module> = LazyLock::new(|| load("build/hostile.watm1.wasm", "test-guest"));

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Takes options of the host and the client from the first byte, and the application's use of the
/// connection from the second. The others are the choices of `tests/guests/water/src/guest.rs`.
pub fn run(input: &[u8]) {
    if let [mode, application, choices @ ..] = input {
        WORLD.with_borrow(|world| {
            world
                .runtime
                .block_on(listen(world, *mode, *application, choices));
        });
    }
}

async fn listen(world: &World, mode: u8, application: u8, choices: &[u8]) {
    let listener = Listener::builder(&MODULE)
        .config([b"hostile :", choices].concat())
        .reach(world.reach(mode & 1 != 0))
        .limits(guests::limits())
        .bind(LOCALHOST)
        .expect("listens");
    let client = TcpStream::connect(listener.local_addr()).await;
    let client = client.expect("connects");
    let said = match mode >> 1 & 3 {
        0 => 0,
        1 => 1,
        2 => 1000,
        _ => MOST_SAID,
    };
    let client = visit(client, said, mode >> 3);
    let served = async {
        // A module that never becomes ready has no connection.
        if let Ok(Ok(connection)) = timeout(PATIENCE, listener.accept()).await {
            let using = use_connection(connection, application);
            let _ = timeout(PATIENCE, using).await;
        }
    };
    tokio::join!(client, served);
    let stopped = timeout(AT_MOST, listener.stop_accepting()).await;
    stopped.expect("stops").expect("stops");
    guests::check_watched();
}

/// Sends `said` bytes. Then half-closes, leaves, or reads until the connection ends.
async fn visit(mut client: TcpStream, said: usize, how: u8) {
    // Ignored error: the module has ended the connection.
    let _ = client.write_all(&vec![7; said]).await;
    match how % 4 {
        // Half-closes.
        0 => drop(client.shutdown().await),
        // Leaves.
        1 => return,
        _ => {}
    }
    let mut buffer = vec![0; 10_000];
    let read = async { while client.read(&mut buffer).await.unwrap_or(0) > 0 {} };
    let _ = timeout(PATIENCE, read).await;
}

async fn use_connection(mut connection: Connection, how: u8) {
    match how % 5 {
        4 => connection.close().await,
        how => guests::use_stream(&mut connection, how).await,
    }
}
