use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::builder::RoleBuilder;
use super::component::ComponentRunner;
use super::connect::WireKind;
use super::incoming;
use super::role::Role;
use super::runner::{Job, Opened};
use super::target::{Target, parse_destination};
use crate::net::outgoing;
use crate::{Error, ErrorCode, Module};

/// Accepts connections through a module and passes each on, through the same, to one address.
///
/// As in a [`Listener`](crate::Listener), handshakes run side by side. A connection that
/// fails, or whose address cannot be reached, costs itself alone; the relay goes on. Dropping
/// the relay frees its port and closes its connections.
///
/// A component decodes what comes in, and the host passes that on by TCP.
pub struct Relay {
    local: SocketAddr,
    task: incoming::Task,
    /// Closed when the relay is to end; what runs for it has the other half.
    closing: watch::Sender<()>,
    /// Ended when all that runs for it has.
    ended: mpsc::Receiver<()>,
    open: Arc<AtomicUsize>,
}

impl Relay {
    /// Begin to describe a relay for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Relay> {
        RoleBuilder::new(module)
    }

    /// Where clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Accept no more, close every connection, and wait until that is done. Bounded by three
    /// times [`Limits::close_grace`](crate::Limits::close_grace).
    pub async fn close(self) {
        let Relay {
            task,
            closing,
            mut ended,
            ..
        } = self;
        drop(task);
        drop(closing);
        // Nothing is ever sent; what runs holds the other half.
        let _ = ended.recv().await;
    }
}

impl RoleBuilder<Relay> {
    /// Listen on `address`, as [`Listener`](crate::Listener) does, and pass connections on to
    /// `target`, which is `host:port`. A name is resolved for each connection anew.
    pub fn bind(self, address: SocketAddr, target: &str) -> Result<Relay, Error> {
        let listener = incoming::bind(address)?;
        self.listen(listener, target)
    }

    /// As [`bind`](RoleBuilder::bind), on a socket that listens already.
    pub fn listen(self, listener: StdListener, target: &str) -> Result<Relay, Error> {
        let target = Target::tcp(parse_destination(target)?);
        if self.is_component() {
            return self.listen_by_component(listener, target);
        }
        let limits = self.limits.clone();
        let name: Arc<str> = self.shown_name().into();
        let runner = self.runner(Role::Relay)?;
        let (listener, local) = incoming::register(listener)?;
        let (closing, close) = watch::channel(());
        let (running, ended) = mpsc::channel::<()>(1);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = incoming::serve_all(listener, limits.handshakes, move |wire| {
            let job = Job {
                target: Some(target.clone()),
                accepted: Some(wire),
                config: None,
            };
            let (runner, name, running) = (runner.clone(), name.clone(), running.clone());
            let close = close.clone();
            let open = Counted::new(&counted);
            async move {
                let opened = match runner.open(job).await {
                    Ok(opened) => opened,
                    Err(error) => {
                        tracing::debug!(target: "watm::server", server = &*name, "{error}");
                        return;
                    }
                };
                // Its handshake is over, so it makes room for another's.
                tokio::spawn(async move {
                    hold(opened, close).await;
                    drop((open, running));
                });
            }
        });
        Ok(Relay {
            local,
            task: incoming::Task::spawn(serve),
            closing,
            ended,
            open,
        })
    }

    fn listen_by_component(self, listener: StdListener, target: Target) -> Result<Relay, Error> {
        incoming::check_runtime()?;
        let after = self.limits.connect_timeout;
        let name: Arc<str> = self.shown_name().into();
        let runner = self.listening(listener)?;
        let local = runner
            .local_addr()
            .ok_or_else(|| Error::System("the listener has no address".to_owned()))?;
        let (closing, close) = watch::channel(());
        let (running, ended) = mpsc::channel::<()>(1);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = async move {
            // Held here, so that the port goes with the task.
            let server = Arc::downgrade(&runner);
            while let Some(opened) = ComponentRunner::accept(&server).await {
                let (target, name, running) = (target.clone(), name.clone(), running.clone());
                let mut close = close.clone();
                let open = Counted::new(&counted);
                tokio::spawn(async move {
                    let mut passing = pin!(pass_on(opened, &target, after));
                    // An error, since nothing is ever sent: the relay ends.
                    let mut closing = pin!(close.changed());
                    let passed = poll_fn(|cx| match passing.as_mut().poll(cx) {
                        Poll::Pending => closing.as_mut().poll(cx).map(|_| Ok(())),
                        passed => passed,
                    });
                    if let Err(error) = passed.await {
                        tracing::debug!(target: "watm::server", server = &*name, "{target}: {error}");
                    }
                    drop((open, running));
                });
            }
            drop(runner);
        };
        Ok(Relay {
            local,
            task: incoming::Task::spawn(serve),
            closing,
            ended,
            open,
        })
    }
}

/// Join what a component decodes to a connection of the host's, until both directions have
/// ended.
async fn pass_on(opened: Opened, target: &Target, after: Duration) -> io::Result<()> {
    let Opened { flow, held, .. } = opened;
    let Some(mut flow) = flow else {
        return Ok(());
    };
    let connected = match timeout(after, outgoing::connect(target)).await {
        Ok(Ok(wire)) => Ok(wire),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let mut upstream = match connected.map(|wire| wire.kind) {
        Ok(WireKind::Tcp(stream)) => stream,
        Ok(_) => return Err(io::ErrorKind::Unsupported.into()),
        Err(error) => {
            flow.abort(ErrorCode::ConnectionRefused);
            return Err(error);
        }
    };
    let copied = copy_bidirectional(&mut flow, &mut upstream).await;
    if copied.is_err() {
        // What is cut short is not to look whole.
        flow.abort(ErrorCode::ConnectionReset);
        let _ = upstream.set_zero_linger();
    }
    let flushed = timeout(after, poll_fn(|cx| flow.poll_flushed(cx))).await;
    drop((flushed, held));
    copied.map(drop)
}

/// Until the connection has ended, by itself or with the relay.
async fn hold(opened: Opened, mut close: watch::Receiver<()>) {
    let Opened {
        mut finished, stop, ..
    } = opened;
    {
        // An error, since nothing is ever sent: the relay ends.
        let mut closing = pin!(close.changed());
        poll_fn(|cx| {
            if Pin::new(&mut finished).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            closing.as_mut().poll(cx).map(drop)
        })
        .await;
    }
    drop(stop);
    if !finished.is_terminated() {
        let _ = finished.await;
    }
}

/// Counts itself.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
