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

use super::access::Access;
use super::builder::RoleBuilder;
use super::component::{ComponentRunner, Gone};
use super::connect::{WireKind, datagrams};
use super::incoming;
use super::role::Role;
use super::runner::{Job, Opened, Runner};
use super::target::{Target, parse_destination};
use crate::{Error, ErrorCode, Module, StreamFlow};

/// Accepts connections through a module and passes each on, through the same, to one address.
///
/// As in a [`Listener`](crate::Listener), handshakes run side by side. A connection that
/// fails, or whose address cannot be reached, costs itself alone; the relay goes on. Dropping
/// the relay frees its port and closes its connections.
///
/// A component decodes what comes in, and the host passes that on by TCP, or by what the
/// connector makes.
pub struct Relay {
    local: SocketAddr,
    task: incoming::Task,
    /// Closed when the relay is to end; what runs for it has the other half.
    closing: watch::Sender<()>,
    /// Ended when all that runs for it has.
    ended: mpsc::Receiver<()>,
    /// Of a component: ready when it has freed the port.
    gone: Option<Gone>,
    open: Arc<AtomicUsize>,
    /// Not held: a component's port goes with the task.
    runner: Weak<dyn Runner>,
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

    /// Have `module` take the connections that come in from now on. Open ones stay as they are. On every error
    /// nothing changes: a module of another kind, without this role, or that refuses the
    /// configuration or fails at once, as [`Server::swap`](crate::Server::swap) says.
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        let runner = self.runner.upgrade().ok_or_else(|| Error::Closed {
            module: module.name().to_owned(),
        })?;
        runner.swap(module.clone()).await
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
            gone,
            ..
        } = self;
        drop(task);
        drop(closing);
        // Nothing is ever sent; what runs holds the other half.
        let _ = ended.recv().await;
        if let Some(gone) = gone {
            gone.await;
        }
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
            gone: None,
            open,
            runner: by,
        })
    }

    fn listen_by_component(self, listener: StdListener, target: Target) -> Result<Relay, Error> {
        incoming::check_runtime()?;
        let access = Arc::new(self.access());
        let runner = self.listening(listener)?;
        let gone = Some(runner.gone());
        let by: Weak<dyn Runner> = Arc::<ComponentRunner>::downgrade(&runner);
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
                        // An error, since nothing is ever sent: the relay ends.
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
                    flow.let_go().await;
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
            gone,
            open,
            runner: by,
        })
    }
}

/// Join what a component decodes to a connection of the host's, until both directions have
/// ended.
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
                // What is cut short is not to look whole.
                let _ = upstream.set_zero_linger();
            }
            copied
        }
        WireKind::Other(mut upstream) => copy_bidirectional(flow, &mut upstream).await,
        WireKind::Udp(_) | WireKind::Datagrams(_) => Err(datagrams()),
    };
    if copied.is_err() {
        // As above.
        flow.abort(ErrorCode::ConnectionReset);
    }
    let flushed = poll_fn(|cx| flow.poll_flushed(cx));
    let _ = timeout(access.connect_timeout, flushed).await;
    copied.map(drop).map_err(failed)
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
