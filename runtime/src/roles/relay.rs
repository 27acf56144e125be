//! Relays: connections that come in through a module and are passed on to one address.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::io::copy_bidirectional;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::builder::RoleBuilder;
use super::component::{Closed, ComponentRunner};
use super::runner::Runner;
use crate::Role;
use crate::Target;
use crate::incoming;
use crate::{Error, ErrorCode, Module, StreamFlow};
use watm_engine::job::{Job, Opened};
use watm_net::connect::{WireKind, datagrams};
use watm_policy::access::Access;

/// Accepts connections through a module and passes each on, through the same module, to one address.
///
/// Handshakes run concurrently, as in a [`Listener`](crate::Listener). A connection that fails, or whose
/// destination cannot be reached, ends alone; the relay continues. Dropping the relay frees its port and
/// closes its connections.
///
/// A component decodes incoming connections, and the host passes the result on by TCP, or by the connector.
pub struct Relay {
    local: SocketAddr,
    task: incoming::Task,
    /// Dropped to end the relay; its tasks have the other half.
    closing: watch::Sender<()>,
    /// Closed when all tasks of the relay have ended.
    ended: mpsc::Receiver<()>,
    /// For a component: returns when it has freed the port.
    closed: Option<Closed>,
    open: Arc<AtomicUsize>,
    /// A weak reference: a component's port is freed with the task.
    runner: Weak<dyn Runner>,
}

impl Relay {
    /// Starts to build a relay for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Relay> {
        RoleBuilder::new(module)
    }

    /// Returns the address that clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Has `module` take the connections that come in from now on. Open ones continue unchanged. An error
    /// changes nothing: a module of another kind, without this role, one that refuses the configuration or
    /// fails at once, as described at [`Server::swap`](crate::Server::swap).
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        let runner = self.runner.upgrade().ok_or_else(|| Error::Closed {
            module: module.name().to_owned(),
        })?;
        runner.swap(module.clone()).await
    }

    /// Returns the number of connections that are open now.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Stops accepting, closes every connection, and waits until that is done. Takes at most three times
    /// [`Limits::close_grace`](crate::Limits::close_grace).
    pub async fn close(self) {
        let Relay {
            task,
            closing,
            mut ended,
            closed,
            ..
        } = self;
        drop(task);
        drop(closing);
        // Nothing is ever sent; the tasks hold the other half.
        let _ = ended.recv().await;
        if let Some(closed) = closed {
            closed.await;
        }
    }
}

impl RoleBuilder<Relay> {
    /// Listens on `address`, as [`Listener`](crate::Listener) does, and passes connections on to `target`,
    /// which is `host:port`. A name is resolved again for each connection.
    pub fn bind(self, address: SocketAddr, target: &str) -> Result<Relay, Error> {
        let listener = incoming::bind(address)?;
        self.listen(listener, target)
    }

    /// Listens as [`bind`](RoleBuilder::bind), on a socket that listens already.
    pub fn listen(self, listener: StdListener, target: &str) -> Result<Relay, Error> {
        let target = Target::tcp(target.parse()?);
        if self.is_component() {
            return self.listen_by_component(listener, target);
        }
        let limits = self.limits.clone();
        let name: Arc<str> = self.shown_name().into();
        let runner = self.listening_on(&listener).runner(Role::Relay)?;
        let (listener, local) = incoming::register(listener)?;
        let by = Arc::downgrade(&runner);
        let (closing, close) = watch::channel(());
        let (running, ended) = mpsc::channel::<()>(1);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = incoming::serve_all(listener, limits.handshakes, pending(), move |wire| {
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
                // Its handshake is over, which makes room for another one.
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
            closed: None,
            open,
            runner: by,
        })
    }

    fn listen_by_component(self, listener: StdListener, target: Target) -> Result<Relay, Error> {
        incoming::check_runtime()?;
        let access = Arc::new(self.access());
        let runner = self.listening(listener)?;
        let closed = Some(runner.closed());
        let by: Weak<dyn Runner> = Arc::<ComponentRunner>::downgrade(&runner);
        let local = runner
            .local_addr()
            .ok_or_else(|| Error::System("the listener has no address".to_owned()))?;
        let (closing, close) = watch::channel(());
        let (running, ended) = mpsc::channel::<()>(1);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = async move {
            // The task holds the runner, so that the port is freed with it.
            let server = Arc::downgrade(&runner);
            while let Some(opened) = ComponentRunner::accept(&server).await {
                let (target, running) = (target.clone(), running.clone());
                let access = access.clone();
                let mut close = close.clone();
                let open = Counted::new(&counted);
                tokio::spawn(async move {
                    let Some(mut flow) = opened.flow else {
                        return;
                    };
                    let passed = {
                        let mut passing = pin!(pass_on(&mut flow, &target, &access));
                        // Nothing is ever sent, so this is an error: the relay ends.
                        let mut closing = pin!(close.changed());
                        poll_fn(|cx| match passing.as_mut().poll(cx) {
                            Poll::Pending => closing.as_mut().poll(cx).map(|_| Ok(())),
                            passed => passed,
                        })
                        .await
                    };
                    if let Err(error) = passed {
                        tracing::debug!(target: "watm::server", server = access.name.as_str(), "{error}");
                    }
                    drop(open);
                    flow.close_and_release().await;
                    drop(running);
                });
            }
            drop(runner);
        };
        Ok(Relay {
            local,
            task: incoming::Task::spawn(serve),
            closing,
            ended,
            closed,
            open,
            runner: by,
        })
    }
}

/// Joins the decoded stream of a component to a connection of the host's, until both directions have ended.
async fn pass_on(flow: &mut StreamFlow, target: &Target, access: &Access) -> Result<(), Error> {
    let failed = |source| access.failed(target, source);
    let connected = access.connect(target, true).await;
    if connected.is_err() {
        flow.abort(ErrorCode::ConnectionRefused);
    }
    let copied = match connected?.kind {
        WireKind::Tcp(mut upstream) => {
            let copied = copy_bidirectional(flow, &mut upstream).await;
            if copied.is_err() {
                // Truncated data must not look complete.
                let _ = upstream.set_zero_linger();
            }
            copied
        }
        WireKind::Other(mut upstream) => copy_bidirectional(flow, &mut upstream).await,
        WireKind::Udp(_) | WireKind::Datagrams(_) => Err(datagrams()),
    };
    if copied.is_err() {
        // The same holds for this end.
        flow.abort(ErrorCode::ConnectionReset);
    }
    let flushed = poll_fn(|cx| flow.poll_flushed(cx));
    let _ = timeout(access.connect_timeout, flushed).await;
    copied.map(drop).map_err(failed)
}

/// Waits until the connection has ended, by itself or with the relay.
async fn hold(opened: Opened, mut close: watch::Receiver<()>) {
    let Opened {
        mut finished, stop, ..
    } = opened;
    {
        // Nothing is ever sent, so this is an error: the relay ends.
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

/// Counts one while it exists.
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
