//! A component behind a dialer, a listener or a relay: the `Runner` over a `Server`.

use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::runner::{Done, Opening, Runner};
use crate::Target;
use crate::{
    Destination, Error, ErrorCode, Module, Server, ServerBuilder, Status, StreamFlow, SwapOptions,
};
use watm_component::Addresses;
use watm_engine::job::{Job, Opened, OuterSocket, Settings};
use watm_net::flow::{DatagramFlow, Flow, KeepAlive};
use watm_net::quota::Permit;

/// The label of the listener of a stream transport's component.
const LISTEN: &str = "listen";

/// See [`ComponentRunner::closed`].
pub(super) type Closed = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Dials or listens through a component. One instance, on a thread of its own, has all connections
/// except those with a configuration of their own, which have one instance each.
pub(super) struct ComponentRunner {
    server: Server,
    /// The module for instances of one connection.
    module: Mutex<Module>,
    settings: Settings,
    /// The place of an instance for one connection, among all of them.
    _place: Option<Permit>,
}

impl ComponentRunner {
    /// Starts the component, to dial. Errors are those of a server's start.
    pub(super) fn dialling(module: &Module, settings: Settings) -> Result<ComponentRunner, Error> {
        let accepting = settings.accepting.clone();
        ComponentRunner::start(module, settings, |server| match accepting {
            Some(accepting) => server.accepting(move |network, to| accepting(network, to)),
            // Nobody would accept them.
            None => server.accepting(|_, _| false),
        })
    }

    /// Starts the component, or a program with these arguments, to listen. Errors are those of a server's start.
    pub(super) fn listening(
        module: &Module,
        settings: Settings,
        listener: StdListener,
        arguments: Option<Vec<String>>,
    ) -> Result<ComponentRunner, Error> {
        ComponentRunner::start(module, settings, |server| {
            let server = server.tcp_listener(LISTEN, listener);
            match arguments {
                Some(arguments) => server.arguments(arguments),
                None => server,
            }
        })
    }

    fn start(
        module: &Module,
        mut settings: Settings,
        grant: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Result<ComponentRunner, Error> {
        let server = Server::builder(module)
            .config(settings.config.take().unwrap_or_default())
            .reach(settings.reach.clone())
            .limits(settings.limits.clone())
            .name(&settings.name)
            .log_level(settings.log_level)
            .connector(settings.connector.clone())
            .keys(settings.keys.clone())
            .capture(settings.capture.clone());
        let sockets = settings.sockets.iter();
        let server = sockets.fold(server, |server, (label, socket)| match socket {
            OuterSocket::Bound(address) => server.udp(label, *address),
            OuterSocket::Carried => server.datagrams(label),
        });
        Ok(ComponentRunner {
            server: grant(server).start()?,
            module: Mutex::new(module.clone()),
            settings,
            _place: None,
        })
    }

    /// Returns the address that a listening component is bound to.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.server.local_addr(LISTEN)
    }

    /// Waits until nobody holds the runner any more, and its port is free.
    pub(super) fn closed(&self) -> Closed {
        Box::pin(self.server.closed())
    }

    /// Returns the next incoming connection, while anybody holds the runner; `None` at the end.
    pub(super) async fn accept(runner: &Weak<ComponentRunner>) -> Option<Opened> {
        loop {
            let accepted = poll_fn(|cx| match runner.upgrade() {
                Some(runner) => runner
                    .server
                    .poll_accept(cx)
                    .map(|flow| Some((flow?, runner))),
                None => Poll::Ready(None),
            });
            match accepted.await? {
                (Flow::Stream(flow), runner) => {
                    let info = flow.info();
                    let addresses = match (&info.underlay, &info.destination) {
                        (Some((remote, local)), _) => (Some(*local), Some(*remote)),
                        (None, Destination::Address(local)) => (Some(*local), Some(info.source)),
                        (None, Destination::Name(..)) => (None, Some(info.source)),
                    };
                    return Some(runner.opened(flow, addresses));
                }
                // A stream transport has no use for datagrams.
                (Flow::Datagrams(flow), _) => flow.close(),
            }
        }
    }

    fn current(&self) -> Module {
        self.module
            .lock()
            .expect("no panic under this lock")
            .clone()
    }

    async fn replace(&self, module: Module) -> Result<(), Error> {
        let options = SwapOptions {
            drain: self.settings.drain,
            ..SwapOptions::default()
        };
        self.server.swap_async(&module, options).await?;
        *self.module.lock().expect("no panic under this lock") = module;
        Ok(())
    }

    /// Runs `dial` on the instance for this configuration, within the handshake timeout.
    async fn in_time<T, Dialling>(
        self: Arc<Self>,
        config: Option<Arc<[u8]>>,
        dial: impl FnOnce(Arc<Self>) -> Dialling,
    ) -> Result<T, Error>
    where
        Dialling: Future<Output = Result<T, Error>>,
    {
        let after = self.settings.limits.handshake_timeout;
        let module = self.settings.name.clone();
        let opening = async {
            let runner = match config {
                None => self,
                Some(config) => Arc::new(self.with_config(&config).await?),
            };
            dial(runner).await
        };
        match timeout(after, opening).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { module, after }),
        }
    }

    /// Starts an instance for one connection.
    async fn with_config(&self, config: &[u8]) -> Result<ComponentRunner, Error> {
        let place = self.settings.flows.permit().ok_or_else(|| Error::Refused {
            module: self.settings.name.clone(),
            code: ErrorCode::LimitReached,
        })?;
        let module = self.current();
        let settings = Settings {
            config: Some(config.to_vec()),
            ..self.settings.clone()
        };
        // A start waits for a thread. If the dial is abandoned, the started instance ends.
        let starting = spawn_blocking(move || ComponentRunner::dialling(&module, settings));
        let started = starting.await.unwrap_or_else(|_| {
            Err(Error::System(
                "the runtime of the dial is shut down".to_owned(),
            ))
        })?;
        Ok(ComponentRunner {
            _place: Some(place),
            ..started
        })
    }

    async fn dial(self: Arc<Self>, target: Option<Target>) -> Result<Opened, Error> {
        let destination = target.map(|target| target.destination);
        let begun = self.server.begin_dial(destination).await?;
        let addresses = begun.attempts.first().await?;
        Ok(self.opened(begun.flow, addresses))
    }

    async fn dial_datagrams(
        self: Arc<Self>,
        target: Option<Target>,
    ) -> Result<DatagramFlow, Error> {
        let destination = target.map(|target| target.destination);
        let begun = self.server.begin_dial_datagrams(destination).await?;
        begun.attempts.first().await?;
        Ok(begun.flow.holding(self))
    }

    fn opened(self: Arc<Self>, flow: StreamFlow, (local, peer): Addresses) -> Opened {
        // A server reports the ends of its flows by the flows themselves, so these channels are
        // unused.
        let (stop, _) = oneshot::channel();
        let (_, finished) = oneshot::channel();
        flow.hold(KeepAlive {
            grace: self.settings.limits.close_grace,
            runtime: Handle::current(),
            _resource: self,
        });
        Opened {
            flow: Some(flow),
            local,
            peer,
            used: None,
            stop,
            finished,
        }
    }
}

impl Runner for ComponentRunner {
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened> {
        Box::pin(self.in_time(job.config, |runner| runner.dial(job.target)))
    }

    fn open_datagrams(self: Arc<Self>, job: Job) -> Opening<DatagramFlow> {
        Box::pin(self.in_time(job.config, |runner| runner.dial_datagrams(job.target)))
    }

    fn accept(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Flow>> + Send>> {
        Box::pin(async move { self.server.accept().await })
    }

    fn swap(self: Arc<Self>, module: Module) -> Done {
        Box::pin(async move { self.replace(module).await })
    }

    fn reconfigure(self: Arc<Self>, config: Vec<u8>) -> Done {
        Box::pin(async move { self.server.reconfigure_async(config).await })
    }

    fn stop_accepting(self: Arc<Self>) -> Done {
        Box::pin(async move { self.server.stop_accepting().await })
    }

    fn status(self: Arc<Self>) -> Opening<Status> {
        Box::pin(async move { self.server.status_async().await })
    }
}
