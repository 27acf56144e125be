//! The application's handle on a running module. `driver` runs the module behind it.

mod builder;
mod capture;
mod request;
mod swap;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::mpsc;

pub use builder::ServerBuilder;
pub use swap::swap_all;

use crate::driver::Command;
use crate::{Capture, ClientConfig, Destination, Error, ErrorCode, Module, Network, Phase, Status};
use watm_component::{BegunDial, Dial};
use watm_engine::hub::Hub;
use watm_net::flow::{DatagramFlow, Flow, StreamFlow};
use watm_net::sockets::Protocol;

/// A running module: its sockets, its instance, its flows. Clones are handles on the same server;
/// dropping the last one closes it.
#[derive(Clone)]
pub struct Server {
    handle: Arc<Handle>,
}

struct Handle {
    hub: Arc<Hub>,
    addresses: Vec<(String, Protocol, SocketAddr)>,
    commands: Mutex<Option<mpsc::Sender<Command>>>,
    executor: tokio::runtime::Handle,
    /// The capture that is being written.
    capture: Mutex<Option<Capture>>,
}

impl Server {
    /// Starts to build a server for this module.
    pub fn builder(module: &Module) -> ServerBuilder {
        ServerBuilder::new(module)
    }

    /// Returns the address that the socket granted under `label` is bound to: the first one's, if
    /// there are a datagram socket and a listener.
    pub fn local_addr(&self, label: &str) -> Option<SocketAddr> {
        let mut addresses = self.handle.addresses.iter();
        addresses
            .find(|(known, ..)| known == label)
            .map(|(.., address)| *address)
    }

    /// Returns the address of the datagram socket or of the listener, otherwise as
    /// [`local_addr`](Server::local_addr).
    pub fn local_addr_of(&self, network: Network, label: &str) -> Option<SocketAddr> {
        let protocol = match network {
            Network::Udp => Protocol::Udp,
            Network::Tcp => Protocol::Tcp,
        };
        let mut addresses = self.handle.addresses.iter();
        addresses
            .find(|(known, of, _)| known == label && *of == protocol)
            .map(|(.., address)| *address)
    }

    /// Returns the next flow; `None` once the server is closed. Wakes when the module opens a flow,
    /// and at the end.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Flow>> {
        self.handle.hub.poll_accept(cx)
    }

    /// Returns the next flow; `None` once the server is closed. Has one caller at a time.
    pub async fn accept(&self) -> Option<Flow> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Returns the server's state. Asks the module between two of its calls and waits for the
    /// answer, for 10 s at most.
    pub fn status(&self) -> Result<Status, Error> {
        self.or_closed(self.handle.ask(Command::Status))
    }

    /// Returns the state as [`status`](Server::status), without blocking.
    pub async fn status_async(&self) -> Result<Status, Error> {
        self.or_closed(self.handle.ask_async(Command::Status).await)
    }

    /// Returns the counters of the host, those with names in `host.`, without asking the module.
    pub fn host_counters(&self) -> BTreeMap<String, u64> {
        self.handle.hub.host_counters()
    }

    /// Returns the configurations that clients need in order to connect, given the host and the port
    /// at which they reach the socket `listen`. They contain secrets. Waits for 10 s at most.
    pub fn client_configs(&self, host: &str, port: u16) -> Result<Vec<ClientConfig>, Error> {
        let public = destination(host, port);
        self.handle
            .ask(|reply| Command::ClientConfigs(public, reply))
    }

    /// Replaces the module's configuration. On an error the old one stays in force. Waits for 10 s
    /// at most.
    pub fn reconfigure(&self, config: impl Into<Vec<u8>>) -> Result<(), Error> {
        let config = config.into();
        self.handle.ask(|reply| Command::Reconfigure(config, reply))
    }

    /// Replaces the configuration as [`reconfigure`](Server::reconfigure), without blocking.
    pub async fn reconfigure_async(&self, config: impl Into<Vec<u8>>) -> Result<(), Error> {
        let config = config.into();
        self.handle
            .ask_async(|reply| Command::Reconfigure(config, reply))
            .await
    }

    /// Has the module carry a stream to `destination`, or to the one of its configuration. Fails
    /// with [`Error::Refused`] if the module only accepts connections, or cannot begin, and with
    /// [`Error::Denied`] if the reason is that it may not connect there. Returns once the module has
    /// begun: later failures are errors of the flow's calls. For this call the module may connect to
    /// `destination`, and otherwise only within its [`reach`](ServerBuilder::reach).
    pub async fn dial(&self, destination: Option<Destination>) -> Result<StreamFlow, Error> {
        Ok(self.begin_dial(destination).await?.flow)
    }

    /// Dials as [`dial`](Server::dial), and waits until the stream is ready: until the connection is
    /// made, or, if the module can tell, until the other end has answered. Fails with the reason if
    /// there is no connection or no answer, as [`Dialer::dial`](crate::Dialer::dial) does. The wait has
    /// no time limit besides the module's own.
    pub async fn dial_connected(
        &self,
        destination: Option<Destination>,
    ) -> Result<StreamFlow, Error> {
        let begun = self.begin_dial(destination).await?;
        begun.attempts.first().await?;
        Ok(begun.flow)
    }

    /// Dials as [`dial`](Server::dial), and returns the outcome of the connections that it needs
    /// too.
    pub(crate) async fn begin_dial(
        &self,
        destination: Option<Destination>,
    ) -> Result<BegunDial<StreamFlow>, Error> {
        let dial = dial(Network::Tcp, destination);
        let begun = self
            .handle
            .ask_async(|reply| Command::Dial(dial, reply))
            .await?;
        self.handle.hub.counters.flows_opened.add(1);
        Ok(begun)
    }

    /// Has the module carry datagrams to `destination`, each whole, and the answers back; otherwise
    /// as [`dial`](Server::dial). The flow ends when the module finds it idle, or can carry nothing
    /// any more. Fails with [`Error::NoDatagrams`] if the module only carries streams.
    pub async fn dial_datagrams(
        &self,
        destination: Option<Destination>,
    ) -> Result<DatagramFlow, Error> {
        Ok(self.begin_dial_datagrams(destination).await?.flow)
    }

    /// Dials as [`begin_dial`](Server::begin_dial), for datagrams.
    pub(crate) async fn begin_dial_datagrams(
        &self,
        destination: Option<Destination>,
    ) -> Result<BegunDial<DatagramFlow>, Error> {
        let dial = dial(Network::Udp, destination);
        let begun = self
            .handle
            .ask_async(|reply| Command::DialDatagrams(dial, reply))
            .await
            .map_err(|error| match error {
                Error::Refused {
                    module,
                    code: ErrorCode::NotSupported,
                } => Error::NoDatagrams { module },
                other => other,
            })?;
        self.handle.hub.counters.flows_opened.add(1);
        Ok(begun)
    }

    /// Stops accepting connections, after those in the backlog. Then the port is free; open
    /// connections continue, and so do datagrams.
    pub async fn stop_accepting(&self) -> Result<(), Error> {
        self.handle.ask_async(Command::StopAccepting).await
    }

    /// Runs `task` on the server's own thread, between two calls of the module, so that its use of
    /// flows and sockets involves no other thread. It has tokio's sockets and timers, must not
    /// block, and is dropped when the server is closed.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.executor.spawn(task);
    }

    /// Begins to close: every flow is reset, and the sockets are released. Idempotent and immediate;
    /// [`wait_closed`](Server::wait_closed) waits until it is done.
    pub fn close(&self) {
        self.handle.close();
    }

    /// Returns ready once the server is closed and its ports are free.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.handle.hub.poll_closed(cx)
    }

    /// Waits until the server is closed and its ports are free.
    pub async fn wait_closed(&self) {
        poll_fn(|cx| self.poll_closed(cx)).await;
    }

    /// Waits as [`wait_closed`](Server::wait_closed), without holding this handle.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let hub = self.handle.hub.clone();
        async move { poll_fn(|cx| hub.poll_closed(cx)).await }
    }

    /// Returns the counters for a server that is closed.
    fn or_closed(&self, status: Result<Status, Error>) -> Result<Status, Error> {
        match status {
            Err(Error::Closed { .. }) => Ok(Status {
                phase: Phase::Closed,
                generation: u32::try_from(self.handle.hub.counters.restarts.get())
                    .unwrap_or(u32::MAX),
                generations: Vec::new(),
                module: None,
                used: self.handle.hub.used(),
                captures: Vec::new(),
                peers: Vec::new(),
                flows: 0,
                counters: self.handle.hub.host_counters(),
            }),
            other => other,
        }
    }
}

impl Handle {
    fn close(&self) {
        self.hub.begin_close();
        // The driver closes when the command channel does.
        self.commands
            .lock()
            .expect("no panic under this lock")
            .take();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// The connector runs in the caller's runtime, which is the application's.
fn dial(network: Network, destination: Option<Destination>) -> Dial {
    Dial {
        network,
        destination,
        runtime: tokio::runtime::Handle::try_current().ok(),
    }
}

fn destination(host: &str, port: u16) -> Destination {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    match bare.parse() {
        Ok(ip) => Destination::Address(SocketAddr::new(ip, port)),
        Err(_) => Destination::Name(host.to_owned(), port),
    }
}
