//! Host calls of a component.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;
use watm_runtime::{Error, Flow, Limits, Module, Phase, Server, Status, SwapOptions};

use crate::guests::{self, AT_MOST, LOCALHOST, PATIENCE, World};
use crate::load;

/// The most instances of a module at a time: a swap has two, and a rollback has a third.
const INSTANCES: u64 = 3;

/// The most bytes that the host keeps for the instances of a module: for each, its memory limit and
/// 16 MiB.
const KEPT: u64 = INSTANCES * (32 << 20);

static MODULE: LazyLock<Module> = LazyLock::new(|| load("build/guest.wasm", "test-guest"));

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Takes options of the host from the first byte and the application's uses of flows from the second.
/// The others are the choices of `tests/guests/src/hostile.rs`.
pub fn run(input: &[u8]) {
    if let [mode, application, choices @ ..] = input {
        WORLD.with_borrow(|world| {
            world
                .runtime
                .block_on(serve(world, *mode, *application, choices));
        });
    }
}

async fn serve(world: &World, mode: u8, application: u8, choices: &[u8]) {
    let limits = guests::limits();
    let server = Server::builder(&MODULE)
        .config(guests::config(world.answers.port(), choices))
        .udp("listen", LOCALHOST)
        .tcp("listen", LOCALHOST)
        .reach(world.reach(mode & 1 != 0))
        .host_crypto(mode & 2 == 0)
        .limits(limits.clone())
        .start();
    let server = match server {
        Ok(server) => server,
        // The module traps in its first call.
        Err(Error::Trap { .. }) => return guests::check_watched(),
        Err(error) => panic!("{error}"),
    };
    let clients = (mode & 4 != 0).then(|| visit(&server));
    let mut uses = JoinSet::new();
    until_over(&server, application, &limits, &mut uses).await;
    if mode & 8 != 0 {
        let options = SwapOptions {
            drain: Some(Duration::from_millis(10)),
            probation: Duration::from_millis(5),
            ..SwapOptions::default()
        };
        // Ignored error: a hostile module can fail in its probation.
        let _ = timeout(AT_MOST, server.swap_async(&MODULE, options)).await;
        until_over(&server, application, &limits, &mut uses).await;
    }
    if mode & 16 != 0 {
        // Ignored error: the module dials nothing, and may have ended.
        let _ = timeout(AT_MOST, server.dial(None)).await;
    }
    server.close();
    let closed = timeout(AT_MOST, server.wait_closed()).await;
    closed.expect("a closed server ends");
    drop(clients);
    let ended = timeout(AT_MOST, async { while uses.join_next().await.is_some() {} }).await;
    ended.expect("flows end with their server");
    let status = server.status_async().await.expect("a status of the host");
    assert_eq!(status.phase, Phase::Closed);
    guests::check_watched();
}

/// Opens a stream to the module and sends it datagrams.
fn visit(server: &Server) -> (Option<TcpStream>, UdpSocket) {
    use watm_runtime::Network::{Tcp, Udp};
    let at = |network| server.local_addr_of(network, "listen").expect("granted");
    let socket = UdpSocket::bind(LOCALHOST).expect("a port");
    for length in [0, 1, 1400] {
        // Ignored error: the module has closed its socket.
        let _ = socket.send_to(&vec![7; length], at(Udp));
    }
    let stream = TcpStream::connect_timeout(&at(Tcp), PATIENCE).ok();
    let stream = stream.inspect(|mut stream| {
        // Ignored error: the module has closed the stream.
        let _ = stream.write_all(b"hello");
    });
    (stream, socket)
}

/// Accepts and uses flows until the module has no more choices.
async fn until_over(server: &Server, application: u8, limits: &Limits, uses: &mut JoinSet<()>) {
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed() < PATIENCE {
        while let Some(flow) = next(server).await {
            let how = application >> (number % 4 * 2);
            number += 1;
            match flow {
                Flow::Stream(stream) => {
                    uses.spawn(guests::use_stream(stream, how));
                }
                Flow::Datagrams(flow) => {
                    uses.spawn(use_datagrams(flow, how));
                }
            }
        }
        // Ignored error: the module gives no valid answer.
        if let Ok(status) = server.status_async().await {
            check_status(&status, limits);
            if status.counters.get("over") == Some(&1) || status.phase == Phase::Closed {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn next(server: &Server) -> Option<Flow> {
    poll_fn(|cx| match server.poll_accept(cx) {
        Poll::Ready(flow) => Poll::Ready(flow),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn use_datagrams(flow: watm_runtime::DatagramFlow, how: u8) {
    if how.is_multiple_of(4) {
        return;
    }
    for length in [0, 1, 1200, 60_000] {
        // Ignored error: the module has ended the flow.
        let _ = flow.send(&vec![7; length]);
    }
    while let Ok(Some(datagram)) = flow.receive().await {
        if how % 4 == 1 {
            let _ = flow.send(&datagram);
        }
    }
}

fn check_status(status: &Status, limits: &Limits) {
    let counter = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    assert!(counter("host.flows") <= limits.flows as u64);
    assert!(counter("host.connections_open") <= limits.descriptors as u64);
    let memory = counter("host.memory_bytes");
    let most = INSTANCES * limits.memory_bytes as u64;
    assert!(memory <= most, "{memory} bytes of {most}");
    assert!(counter("host.kept.memory_bytes") <= KEPT);
    if let Phase::Failed(reason) = &status.phase {
        assert!(!reason.chars().any(char::is_control), "{reason:?}");
    }
}
