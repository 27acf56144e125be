use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::role::Role;
use super::runner::{Job, Opened, Runner, Settings};
use crate::{Error, Module, Server};

/// Dials through a component: one instance for all connections, on a thread of its own.
pub(super) struct ComponentRunner {
    server: Server,
    name: String,
}

impl ComponentRunner {
    /// Start the component. Errors are those of a server's start.
    pub(super) fn new(
        module: &Module,
        role: Role,
        settings: Settings,
    ) -> Result<ComponentRunner, Error> {
        let refuse = |reason: &str| {
            Err(Error::Options(format!(
                "{}: a component, {reason}",
                settings.name
            )))
        };
        if matches!(role, Role::Listener | Role::Relay) {
            return refuse("which owns its listeners; grant it one by `Server::builder`");
        }
        if settings.connector.is_some() {
            return refuse("whose connections the host makes; leave out the connector");
        }
        let server = Server::builder(module)
            .config(settings.config.unwrap_or_default())
            .reach(settings.reach)
            .limits(settings.limits)
            .name(&settings.name)
            .log_level(settings.log_level)
            .start()?;
        Ok(ComponentRunner {
            server,
            name: settings.name,
        })
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
        // The server tells of its flows' ends by the flows themselves.
        let (stop, _) = oneshot::channel();
        let (_, finished) = oneshot::channel();
        Ok(Opened {
            flow: Some(flow),
            local: None,
            peer: None,
            stop,
            finished,
            alive: Some(self),
        })
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
