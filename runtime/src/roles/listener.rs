//! Listeners: connections that come in through a module.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tokio::sync::{mpsc, watch};

use super::builder::RoleBuilder;
use super::component::ComponentRunner;
use super::connection::Connection;
use super::runner::Runner;
use crate::Role;
use crate::incoming;
use crate::{Error, ErrorCode, Module};
use watm_engine::job::Job;

/// Accepts connections through a module.
///
/// Handshakes run concurrently, [`Limits::handshakes`](crate::Limits::handshakes) at once, so that no client
/// has to wait for another. One that fails is logged at DEBUG and dropped. Dropping the listener frees its
/// port; accepted connections live on.
///
/// A component serves all connections in one instance, which keeps the port for as long as any of them lives.
/// After the listener is dropped it resets new ones.
pub struct Listener {
    ready: Mutex<mpsc::Receiver<Connection>>,
    local: SocketAddr,
    runner: Arc<dyn Runner>,
    /// The task that accepts in a component's place; it ends with the listener, or before.
    task: Mutex<Option<incoming::Task>>,
    name: Arc<str>,
    /// True once the application has stopped accepting.
    stopped: watch::Sender<bool>,
}

impl Listener {
    /// Starts to build a listener for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Listener> {
        RoleBuilder::new(module)
    }

    /// Returns the next connection that is ready. Has one caller at a time.
    ///
    /// After [`stop_accepting`](Listener::stop_accepting) it returns the connections that were
    /// ready before, then fails with [`Error::Closed`]. It fails with [`Error::System`] when the
    /// runtime that the listener was made in is gone.
    pub async fn accept(&self) -> Result<Connection, Error> {
        let mut stopped = self.stopped.subscribe();
        let mut stopping = pin!(stopped.wait_for(|stopped| *stopped));
        let next = poll_fn(|cx| {
            let polled = {
                let mut ready = self.ready.lock().expect("no panic under this lock");
                ready.poll_recv(cx)
            };
            match polled {
                // An error would mean that no sender is left, and `self` holds one.
                Poll::Pending => stopping.as_mut().poll(cx).map(|_| None),
                next => next,
            }
        });
        if let Some(connection) = next.await {
            return Ok(connection);
        }
        Err(match *self.stopped.borrow() {
            true => Error::Closed {
                module: self.name.to_string(),
            },
            false => Error::System("the listener's runtime is shut down".to_owned()),
        })
    }

    /// Has `module` take the connections that come in from now on. Open ones continue unchanged. An error
    /// changes nothing: a module of another kind, without this role, one that refuses the configuration or
    /// fails at once, as described at [`Server::swap`](crate::Server::swap).
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        self.runner.clone().swap(module.clone()).await
    }

    /// Has the module check its configuration for listening. A component did so when it started; a WATER
    /// module does so for each connection, and not before the first one.
    pub async fn check_config(&self) -> Result<(), Error> {
        self.runner.clone().check_config().await
    }

    /// Stops accepting connections, and frees the port. Connections in a handshake may not become ready;
    /// accepted ones live on.
    pub async fn stop_accepting(&self) -> Result<(), Error> {
        // The flag is set first, so that a caller of `accept` knows why there are no more.
        self.stopped.send_replace(true);
        drop(self.task.lock().expect("no panic under this lock").take());
        self.runner.clone().stop_accepting().await
    }

    /// Returns the address that clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl RoleBuilder<Listener> {
    /// Listens on `address`; with port 0 the system chooses one, and `[::]` takes IPv4 too. Must be called
    /// within a tokio runtime, which then runs the listener and its connections.
    ///
    /// Fails if the module does not have this role, if the address cannot be bound, or if a limit is out of
    /// range.
    pub fn bind(self, address: SocketAddr) -> Result<Listener, Error> {
        let listener = incoming::bind(address)?;
        self.listen(listener)
    }

    /// Listens as [`bind`](RoleBuilder::bind), on a socket that listens already.
    pub fn listen(self, listener: StdListener) -> Result<Listener, Error> {
        if self.is_component() || self.is_program() {
            return self.listen_by_component(listener);
        }
        let limits = self.limits.clone();
        let name: Arc<str> = self.shown_name().into();
        let runner = self.listening_on(&listener).runner(Role::Listener)?;
        let (listener, local) = incoming::register(listener)?;
        let (sender, ready) = mpsc::channel(limits.accept_backlog);
        let shown = name.clone();
        let by = runner.clone();
        let serve = incoming::serve_all(listener, limits.handshakes, pending(), move |wire| {
            let (runner, sender, name) = (by.clone(), sender.clone(), name.clone());
            async move {
                let job = Job {
                    target: None,
                    accepted: Some(wire),
                    config: None,
                };
                let opened = runner.open(job).await;
                // The connection has its instance now, which makes room for another handshake.
                tokio::spawn(async move {
                    let ready = async {
                        let mut opened = opened?;
                        opened.established(&name).await?;
                        Connection::of(opened)
                    };
                    let mut ready = pin!(ready);
                    let mut unwanted = pin!(sender.closed());
                    let ready = poll_fn(|cx| match ready.as_mut().poll(cx) {
                        Poll::Pending => unwanted.as_mut().poll(cx).map(|()| None),
                        ready => ready.map(Some),
                    });
                    match ready.await {
                        // If nobody accepts any more, the connection is closed.
                        Some(Ok(connection)) => drop(sender.send(connection).await),
                        Some(Err(error)) => {
                            tracing::debug!(target: "watm::server", server = &*name, "{error}");
                        }
                        None => {}
                    }
                });
            }
        });
        Ok(Listener {
            ready: Mutex::new(ready),
            local,
            runner,
            task: Mutex::new(Some(incoming::Task::spawn(serve))),
            name: shown,
            stopped: watch::Sender::new(false),
        })
    }

    fn listen_by_component(self, listener: StdListener) -> Result<Listener, Error> {
        incoming::check_runtime()?;
        let (sender, ready) = mpsc::channel(self.limits.accept_backlog);
        let name = self.shown_name().into();
        let runner = self.listening(listener)?;
        let local = runner
            .local_addr()
            .ok_or_else(|| Error::System("the listener has no address".to_owned()))?;
        let server = Arc::downgrade(&runner);
        tokio::spawn(async move {
            while let Some(opened) = ComponentRunner::accept(&server).await {
                if sender.is_closed() {
                    if let Some(flow) = opened.flow {
                        flow.abort(ErrorCode::ConnectionRefused);
                    }
                } else if let Ok(connection) = Connection::of(opened) {
                    // If nobody accepts any more, the connection is closed.
                    let _ = sender.send(connection).await;
                }
            }
        });
        Ok(Listener {
            ready: Mutex::new(ready),
            local,
            runner,
            task: Mutex::default(),
            name,
            stopped: watch::Sender::new(false),
        })
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
