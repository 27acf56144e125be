//! The application's handle on a running module.

mod builder;
mod request;
mod swap;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::mpsc;

pub use builder::ServerBuilder;
pub(crate) use builder::check_use;
pub use swap::{SwapOptions, swap_all};

use crate::component::{Begun, Dial};
use crate::driver::Command;
use crate::flow::{DatagramFlow, Flow, StreamFlow};
use crate::hub::Hub;
use crate::net::Protocol;
use crate::{ClientConfig, Destination, Error, ErrorCode, Module, Network, Phase, Status};

/// A module at work: its sockets, its instance, its flows. Clones are handles on the same
/// server; dropping the last one closes it.
#[derive(Clone)]
pub struct Server {
    handle: Arc<Handle>,
}

struct Handle {
    hub: Arc<Hub>,
    addresses: Vec<(String, Protocol, SocketAddr)>,
    commands: Mutex<Option<mpsc::Sender<Command>>>,
    executor: tokio::runtime::Handle,
}

impl Server {
    /// Begin to describe a server for this module.
    pub fn builder(module: &Module) -> ServerBuilder {
        ServerBuilder::new(module)
    }

    /// The address that the socket granted under `label` is bound to; the first one's, if there
    /// are a datagram socket and a listener.
    pub fn local_addr(&self, label: &str) -> Option<SocketAddr> {
        let mut addresses = self.handle.addresses.iter();
        addresses
            .find(|(known, ..)| known == label)
            .map(|(.., address)| *address)
    }

    /// As [`local_addr`](Server::local_addr), of the datagram socket or of the listener.
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

    /// The next flow; `None` once the server is closed. Changes when the module opens a
    /// flow, and at the end.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Flow>> {
        self.handle.hub.poll_accept(cx)
    }

    /// The next flow; `None` once the server is closed. For one caller at a time.
    pub async fn accept(&self) -> Option<Flow> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// How the server is doing. Asks the module between two of its calls and waits for
    /// the answer, for 10 s at most.
    pub fn status(&self) -> Result<Status, Error> {
        self.or_closed(self.handle.ask(Command::Status))
    }

    /// As [`status`](Server::status), without blocking.
    pub async fn status_async(&self) -> Result<Status, Error> {
        self.or_closed(self.handle.ask_async(Command::Status).await)
    }

    /// What clients need in order to connect, given the host and the port that they reach
    /// the socket `listen` at. Contains secrets. Waits for 10 s at most.
    pub fn client_configs(&self, host: &str, port: u16) -> Result<Vec<ClientConfig>, Error> {
        let public = destination(host, port);
        self.handle
            .ask(|reply| Command::ClientConfigs(public, reply))
    }

    /// Replace the module's configuration. On an error the old one stays in force. Waits
    /// for 10 s at most.
    pub fn reconfigure(&self, config: impl Into<Vec<u8>>) -> Result<(), Error> {
        let config = config.into();
        self.handle.ask(|reply| Command::Reconfigure(config, reply))
    }

    /// Have the module carry a stream to `destination`, or to where its configuration says.
    /// Fails with [`Error::Refused`] if the module only takes connections on, or cannot
    /// begin, and with [`Error::Denied`] if that is because it may not get there; what fails
    /// later is what the flow's calls fail with. On behalf of this call
    /// the module may connect to `destination`, and to nothing else but its
    /// [`reach`](ServerBuilder::reach).
    pub async fn dial(&self, destination: Option<Destination>) -> Result<StreamFlow, Error> {
        Ok(self.begin_dial(destination).await?.flow)
    }

    /// As [`dial`](Server::dial), and what becomes of the connections that it takes.
    pub(crate) async fn begin_dial(
        &self,
        destination: Option<Destination>,
    ) -> Result<Begun<StreamFlow>, Error> {
        let dial = dial(Network::Tcp, destination);
        self.handle
            .ask_async(|reply| Command::Dial(dial, reply))
            .await
    }

    /// As [`dial`](Server::dial), of datagrams: have the module carry them to `destination`,
    /// each whole, and the answers back. The flow ends when the module finds it idle, or can
    /// carry nothing any more. Fails with [`Error::NoDatagrams`] if the module carries streams
    /// alone.
    pub async fn dial_datagrams(
        &self,
        destination: Option<Destination>,
    ) -> Result<DatagramFlow, Error> {
        Ok(self.begin_dial_datagrams(destination).await?.flow)
    }

    /// As [`begin_dial`](Server::begin_dial), of datagrams.
    pub(crate) async fn begin_dial_datagrams(
        &self,
        destination: Option<Destination>,
    ) -> Result<Begun<DatagramFlow>, Error> {
        let dial = dial(Network::Udp, destination);
        let begun = self
            .handle
            .ask_async(|reply| Command::DialDatagrams(dial, reply))
            .await;
        begun.map_err(|error| match error {
            Error::Refused {
                module,
                code: ErrorCode::NotSupported,
            } => Error::NoDatagrams { module },
            other => other,
        })
    }

    /// Accept no more connections: those that the kernel has for the server already are the last.
    /// Then the port is free; what is open goes on, and so do datagrams.
    pub async fn stop_accepting(&self) -> Result<(), Error> {
        self.handle.ask_async(Command::StopAccepting).await
    }

    /// Run `task` on the server's own thread, between two calls of the module: what it reads from
    /// and writes to flows and sockets of its own then changes no thread. It has tokio's sockets and
    /// timers, must not block, and is dropped when the server is closed.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.executor.spawn(task);
    }

    /// Begin to close: every flow is reset, the sockets are released. Idempotent and
    /// immediate; [`wait_closed`](Server::wait_closed) tells when it is done.
    pub fn close(&self) {
        self.handle.close();
    }

    /// Ready once the server is closed and its ports are free.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.handle.hub.poll_closed(cx)
    }

    /// Wait until the server is closed and its ports are free.
    pub async fn wait_closed(&self) {
        poll_fn(|cx| self.poll_closed(cx)).await;
    }

    /// As [`wait_closed`](Server::wait_closed), apart from this handle.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let hub = self.handle.hub.clone();
        async move { poll_fn(|cx| hub.poll_closed(cx)).await }
    }

    /// A closed server still has its counters.
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
        // The driver takes the end of its commands as the request.
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

/// For the connector, what runs now is where the application is.
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
