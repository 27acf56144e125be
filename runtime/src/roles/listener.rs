use std::fmt;
use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use super::builder::RoleBuilder;
use super::connection::Connection;
use super::incoming;
use super::role::Role;
use super::runner::Job;
use crate::{Error, Module};

/// Accepts connections through a module.
///
/// Handshakes run side by side, [`Limits::handshakes`](crate::Limits::handshakes) at once, so
/// that no client has to wait for another. One that fails is logged at DEBUG and forgotten.
/// Dropping the listener frees its port; accepted connections live on.
pub struct Listener {
    ready: Mutex<mpsc::Receiver<Connection>>,
    local: SocketAddr,
    _task: incoming::Task,
}

impl Listener {
    /// Begin to describe a listener for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Listener> {
        RoleBuilder::new(module)
    }

    /// The next connection that is ready. Fails when the runtime that the listener was made
    /// in is gone. For one caller at a time.
    pub async fn accept(&self) -> Result<Connection, Error> {
        let next = poll_fn(|cx| {
            let mut ready = self.ready.lock().expect("no panic under this lock");
            ready.poll_recv(cx)
        });
        next.await
            .ok_or_else(|| Error::System("the listener's runtime is shut down".to_owned()))
    }

    /// Where clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl RoleBuilder<Listener> {
    /// Listen on `address`; port 0 lets the system choose, and `[::]` takes IPv4 too. Within
    /// a tokio runtime, which then runs the listener and its connections.
    ///
    /// Fails if the module has not this role, if the address cannot be had, or if a limit is
    /// out of range.
    pub fn bind(self, address: SocketAddr) -> Result<Listener, Error> {
        let listener = incoming::bind(address)?;
        self.listen(listener)
    }

    /// As [`bind`](RoleBuilder::bind), on a socket that listens already.
    pub fn listen(self, listener: StdListener) -> Result<Listener, Error> {
        let limits = self.limits.clone();
        let name: Arc<str> = self.shown_name().into();
        let runner = self.runner(Role::Listener)?;
        let (listener, local) = incoming::register(listener)?;
        let (sender, ready) = mpsc::channel(limits.accept_backlog);
        let serve = incoming::serve_all(listener, limits.handshakes, move |wire| {
            let (runner, sender, name) = (runner.clone(), sender.clone(), name.clone());
            async move {
                let job = Job {
                    target: None,
                    accepted: Some(wire),
                    config: None,
                };
                match runner.open(job).await.and_then(Connection::of) {
                    // Nobody accepts any more; then the connection is closed.
                    Ok(connection) => drop(sender.send(connection).await),
                    Err(error) => {
                        tracing::debug!(target: "watm::server", server = &*name, "{error}");
                    }
                }
            }
        });
        Ok(Listener {
            ready: Mutex::new(ready),
            local,
            _task: incoming::Task::spawn(serve),
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
