use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use super::runner::{Held, Job, Opened, Runner, Settings};
use crate::flow::Flow;
use crate::{Destination, Error, Module, Server, ServerBuilder, StreamFlow};

/// What a component of a stream transport calls its listener.
const LISTEN: &str = "listen";

/// Dials or listens through a component: one instance for all connections, on a thread of
/// its own.
pub(super) struct ComponentRunner {
    server: Server,
    name: String,
    grace: Duration,
}

impl ComponentRunner {
    /// Start the component, to dial. Errors are those of a server's start.
    pub(super) fn dialling(module: &Module, settings: Settings) -> Result<ComponentRunner, Error> {
        ComponentRunner::start(module, settings, |server| server)
    }

    /// Start the component, to listen. Errors are those of a server's start.
    pub(super) fn listening(
        module: &Module,
        settings: Settings,
        listener: StdListener,
    ) -> Result<ComponentRunner, Error> {
        ComponentRunner::start(module, settings, |server| {
            server.tcp_listener(LISTEN, listener)
        })
    }

    fn start(
        module: &Module,
        settings: Settings,
        grant: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Result<ComponentRunner, Error> {
        if settings.connector.is_some() {
            return Err(Error::Options(format!(
                "{}: a component, whose connections the host makes; leave out the connector",
                settings.name
            )));
        }
        let grace = settings.limits.close_grace;
        let server = Server::builder(module)
            .config(settings.config.unwrap_or_default())
            .reach(settings.reach)
            .limits(settings.limits)
            .name(&settings.name)
            .log_level(settings.log_level);
        Ok(ComponentRunner {
            server: grant(server).start()?,
            name: settings.name,
            grace,
        })
    }

    /// Where a component that listens does.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.server.local_addr(LISTEN)
    }

    /// The next connection that came in, while anybody has the runner: `None` is the end.
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
                (Flow::Stream(flow), runner) => return Some(runner.opened(flow)),
                // Nothing of a stream transport.
                (Flow::Datagrams(flow), _) => flow.close(),
            }
        }
    }

    async fn dial(self: Arc<Self>, job: Job) -> Result<Opened, Error> {
        if job.config.is_some() {
            return Err(Error::Options(format!(
                "{}: a component, which has one configuration for all connections; give it to \
                 the dialer",
                self.name
            )));
        }
        let destination = job.target.map(|target| target.destination);
        let flow = self.server.dial(destination).await?;
        Ok(Opened {
            local: None,
            peer: None,
            ..self.opened(flow)
        })
    }

    fn opened(self: Arc<Self>, flow: StreamFlow) -> Opened {
        // The server tells of its flows' ends by the flows themselves.
        let (stop, _) = oneshot::channel();
        let (_, finished) = oneshot::channel();
        let info = flow.info();
        let (peer, local) = match (&info.underlay, &info.destination) {
            (Some((remote, local)), _) => (Some(*remote), Some(*local)),
            (None, Destination::Address(local)) => (Some(info.source), Some(*local)),
            (None, Destination::Name(..)) => (Some(info.source), None),
        };
        Opened {
            flow: Some(flow),
            local,
            peer,
            stop,
            finished,
            held: Some(Held {
                grace: self.grace,
                _runner: self,
            }),
        }
    }
}

impl Runner for ComponentRunner {
    fn open(
        self: Arc<Self>,
        job: Job,
    ) -> Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>> {
        Box::pin(self.dial(job))
    }
}
