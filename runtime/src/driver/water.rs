//! A WATER module behind a server: an instance a connection, all on the server's thread.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use super::{Command, Plan};
use crate::component::{Attempts, Begun};
use crate::flow::Flow;
use crate::hub::Hub;
use crate::net::BoundSocket;
use crate::roles::{Job, Opened, Runner, Settings, Wire, serve_all};
use crate::water::WaterRunner;
use crate::{Destination, Error, ErrorCode, Module, Phase, Reach, Role, Status, Target};

/// The label of the one socket that such a module can use.
const LISTEN: &str = "listen";

pub(super) struct WaterServer {
    hub: Arc<Hub>,
    module: Module,
    reach: Reach,
    log_level: tracing::Level,
    listener: Option<TcpListener>,
    /// Changed by a new configuration, for connections that come after it.
    runner: Arc<Mutex<Arc<WaterRunner>>>,
    /// Dials that are on their way.
    dialling: Arc<Semaphore>,
}

impl WaterServer {
    /// Within the context of a tokio runtime. Has the module look at its configuration.
    pub(super) async fn new(plan: Plan) -> Result<WaterServer, Error> {
        let refuse =
            |reason: String| Err(Error::Options(format!("{}: {reason}", plan.module.name())));
        if plan.recorder.is_some() {
            return refuse("recordings are of components; this is a WATER module".to_owned());
        }
        let mut listener = None;
        for (label, socket) in plan.sockets {
            match socket {
                BoundSocket::Tcp(socket, _) if label == LISTEN && listener.is_none() => {
                    listener = Some(TcpListener::from_std(socket).map_err(|error| {
                        Error::System(format!("socket with label \"{label}\": {error}"))
                    })?);
                }
                _ => {
                    return refuse(format!(
                        "a WATER module gets one socket, a TCP listener labelled \"{LISTEN}\"; \
                         \"{label}\" is another"
                    ));
                }
            }
        }
        if listener.is_some() && !plan.module.info().roles.contains(&Role::Listener) {
            return refuse(format!("has not the role of a {}", Role::Listener));
        }
        let dialling = Arc::new(Semaphore::new(plan.hub.limits.handshakes));
        let runner = make_runner(
            &plan.hub,
            &plan.module,
            plan.config,
            plan.reach.clone(),
            plan.log_level,
        )?;
        runner.check_config().await?;
        Ok(WaterServer {
            runner: Arc::new(Mutex::new(runner)),
            hub: plan.hub,
            module: plan.module,
            reach: plan.reach,
            log_level: plan.log_level,
            listener,
            dialling,
        })
    }

    /// Until the commands end.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut accepting = self.accept_all();
        poll_fn(|cx| {
            // Never ready.
            let _ = accepting.as_mut().poll(cx);
            loop {
                match commands.poll_recv(cx) {
                    Poll::Ready(Some(command)) => self.answer(command),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    fn accept_all(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let Some(listener) = self.listener.take() else {
            return Box::pin(pending());
        };
        let (hub, runner) = (self.hub.clone(), self.runner.clone());
        let at_once = hub.limits.handshakes;
        Box::pin(serve_all(listener, at_once, move |wire| {
            hub.counters.connections_accepted.add(1);
            accept(hub.clone(), current(&runner), wire)
        }))
    }

    fn answer(&self, command: Command) {
        match command {
            Command::Status(reply) => reply(Ok(self.status())),
            Command::ClientConfigs(_, reply) => reply(Err(Error::Refused {
                module: self.hub.name.clone(),
                code: ErrorCode::NotSupported,
            })),
            Command::Reconfigure(config, reply) => {
                let made = make_runner(
                    &self.hub,
                    &self.module,
                    config,
                    self.reach.clone(),
                    self.log_level,
                );
                let slot = self.runner.clone();
                tokio::spawn(async move {
                    reply(match made {
                        Ok(runner) => runner.check_config().await.map(|()| {
                            *slot.lock().expect("no panic under this lock") = runner;
                        }),
                        Err(error) => Err(error),
                    });
                });
            }
            Command::Dial(asked, reply) => {
                let Ok(permit) = self.dialling.clone().try_acquire_owned() else {
                    return reply(Err(Error::Busy {
                        module: self.hub.name.clone(),
                    }));
                };
                let runner = current(&self.runner);
                tokio::spawn(async move {
                    reply(dial(runner, asked.destination).await);
                    drop(permit);
                });
            }
        }
    }

    fn status(&self) -> Status {
        Status {
            phase: Phase::Running,
            generation: 0,
            peers: Vec::new(),
            flows: u32::try_from(self.hub.flows.open()).unwrap_or(u32::MAX),
            counters: self.hub.host_counters(),
        }
    }
}

fn make_runner(
    hub: &Hub,
    module: &Module,
    config: Vec<u8>,
    reach: Reach,
    log_level: tracing::Level,
) -> Result<Arc<WaterRunner>, Error> {
    let settings = Settings {
        name: hub.name.clone(),
        limits: hub.limits.clone(),
        // A server has a configuration, which is empty by default.
        config: (!config.is_empty()).then_some(config),
        reach,
        connector: None,
        log_level,
        counters: hub.counters.clone(),
        flows: hub.flows.clone(),
    };
    Ok(Arc::new(WaterRunner::new(module, settings)?))
}

fn current(runner: &Mutex<Arc<WaterRunner>>) -> Arc<WaterRunner> {
    runner.lock().expect("no panic under this lock").clone()
}

async fn accept(hub: Arc<Hub>, runner: Arc<WaterRunner>, wire: Wire) {
    let job = Job {
        target: None,
        accepted: Some(wire),
        config: None,
    };
    let offered = match runner.open(job).await {
        Ok(opened) => offer(&hub, opened),
        Err(error) => Err(error),
    };
    match offered {
        Ok(waker) => waker.into_iter().for_each(Waker::wake),
        Err(error) => {
            tracing::debug!(target: "watm::server", server = hub.name.as_str(), "{error}");
        }
    }
}

fn offer(hub: &Hub, opened: Opened) -> Result<Option<Waker>, Error> {
    let refused = |code| Error::Refused {
        module: hub.name.clone(),
        code,
    };
    hub.check_backlog().map_err(refused)?;
    let flow = opened
        .flow
        .ok_or_else(|| refused(ErrorCode::InvalidState))?;
    Ok(hub.offer(Flow::Stream(flow)))
}

async fn dial(runner: Arc<WaterRunner>, destination: Option<Destination>) -> Result<Begun, Error> {
    let job = Job {
        target: destination.map(Target::tcp),
        accepted: None,
        config: None,
    };
    let opened = runner.open(job).await?;
    let flow = opened
        .flow
        .ok_or_else(|| Error::System("the connection has no application".to_owned()))?;
    Ok(Begun {
        flow,
        attempts: Attempts::none(),
    })
}
