//! Incoming connections, which are served concurrently, each with its handshake. Called by the
//! roles and by the server of a WATER module. Used by `listener`, `relay` and `water`.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::{Error, Network};
use watm_net::connect::Wire;
use watm_net::sockets::{BoundSocket, Grant};

/// The pause after the system had no descriptor or memory for a connection: long enough for others
/// to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A task that is aborted when its owner is dropped.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(task))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Binds a listening socket at `address`.
pub(crate) fn bind(address: SocketAddr) -> Result<StdListener, Error> {
    let grant = Grant {
        label: "listen".to_owned(),
        network: Network::Tcp,
        address,
        ipv6_only: false,
    };
    match grant.bind()? {
        BoundSocket::Tcp(listener, _) => Ok(listener),
        _ => Err(Error::System("not a listener".to_owned())),
    }
}

/// Fails if there is no tokio runtime to start tasks in.
pub(crate) fn check_runtime() -> Result<(), Error> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Options(
            "connections must be accepted within a tokio runtime; call this from one".to_owned(),
        )),
    }
}

/// Registers a listener with the runtime, and returns it with its address.
pub(crate) fn register(listener: StdListener) -> Result<(TcpListener, SocketAddr), Error> {
    check_runtime()?;
    let registered = || -> io::Result<(TcpListener, SocketAddr)> {
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, local))
    };
    registered().map_err(|error| Error::System(format!("the listening socket: {error}")))
}

/// Accepts until `ending` is ready, then the rest of the backlog, and serves each connection with
/// `serve`, up to `at_once` together. Returns when all are served. Dropping the future ends the
/// connections that are being served.
pub(crate) async fn serve_all<Serving>(
    listener: TcpListener,
    at_once: usize,
    ending: impl Future<Output = ()>,
    serve: impl Fn(Wire) -> Serving,
) where
    Serving: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(at_once));
    let mut ending = pin!(ending);
    let mut ended = false;
    let mut serving = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = room.clone().acquire_owned().await else {
            break;
        };
        let accepted = poll_fn(|cx| {
            ended = ended || ending.as_mut().poll(cx).is_ready();
            match listener.poll_accept(cx) {
                Poll::Pending if ended => Poll::Ready(None),
                accepted => accepted.map(Some),
            }
        });
        let stream = match accepted.await {
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                tracing::debug!(target: "watm::server", "accept: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => break,
        };
        // Latency matters more than the number of packets.
        let _ = stream.set_nodelay(true);
        while serving.try_join_next().is_some() {}
        let served = serve(Wire::tcp(stream));
        serving.spawn(async move {
            served.await;
            drop(permit);
        });
    }
    drop(listener);
    while serving.join_next().await.is_some() {}
}
