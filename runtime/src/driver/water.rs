//! A WATER module behind a server: an instance a connection, all on the server's thread.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Command, Plan, Reply, Swap};
use crate::component::{Attempts, Begun};
use crate::flow::{Flow, StreamFlow};
use crate::hub::Hub;
use crate::net::BoundSocket;
use crate::roles::{Job, Opened, Settings, Wire, serve_all};
use crate::water::{Slot, WaterRunner};
use crate::{Destination, Error, ErrorCode, Keys, Module, Phase, Reach, Role, Status, Target};

/// The label of the one socket that such a module can use.
const LISTEN: &str = "listen";

pub(super) struct WaterServer {
    hub: Arc<Hub>,
    reach: Reach,
    log_level: tracing::Level,
    listener: Option<TcpListener>,
    /// Whether it is to be closed.
    ending: watch::Sender<bool>,
    /// Changed by a new module or configuration, for connections that come after it.
    current: Arc<Slot<Current>>,
    /// The number of the next generation.
    next: u32,
    /// Dials that are on their way.
    dialling: Arc<Semaphore>,
}

/// What serves new connections.
#[derive(Clone)]
struct Current {
    generation: u32,
    module: Module,
    config: Vec<u8>,
    runner: Arc<WaterRunner>,
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
            plan.config.clone(),
            plan.reach.clone(),
            plan.log_level,
        )?;
        runner.check_config().await?;
        Ok(WaterServer {
            current: Slot::new(Current {
                generation: 0,
                module: plan.module,
                config: plan.config,
                runner,
            }),
            next: 1,
            hub: plan.hub,
            reach: plan.reach,
            log_level: plan.log_level,
            listener,
            ending: watch::channel(false).0,
            dialling,
        })
    }

    /// Until the commands end.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut accepting = Some(self.accept_all());
        poll_fn(|cx| {
            let accepts = accepting.as_mut().map(|task| task.as_mut().poll(cx));
            if accepts.is_some_and(|task| task.is_ready()) {
                accepting = None;
            }
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
        let (hub, slot) = (self.hub.clone(), self.current.clone());
        let at_once = hub.limits.handshakes;
        let mut asked = self.ending.subscribe();
        let ending = async move {
            // An error: the server ends altogether.
            let _ = asked.wait_for(|ending| *ending).await;
        };
        Box::pin(serve_all(listener, at_once, ending, move |wire| {
            hub.counters.connections_accepted.add(1);
            accept(hub.clone(), slot.current(), wire)
        }))
    }

    fn answer(&mut self, command: Command) {
        match command {
            Command::Status(reply) => reply(Ok(self.status())),
            Command::ClientConfigs(_, reply) => reply(Err(Error::Refused {
                module: self.hub.name.clone(),
                code: ErrorCode::NotSupported,
            })),
            Command::Reconfigure(config, reply) => {
                self.reconfigure(config, reply);
            }
            Command::Swap(swap, reply) => match self.check_swap(&swap.module) {
                Ok(()) => self.replace(swap, reply),
                Err(reason) => reply(Err(Error::Swap {
                    module: swap.module.name().to_owned(),
                    reason,
                })),
            },
            // Each connection has an instance of its own.
            Command::Snapshot(reply) => reply(Ok(Vec::new())),
            Command::StopAccepting(reply) => {
                self.ending.send_replace(true);
                reply(Ok(()));
            }
            Command::Dial(asked, reply) => {
                let Ok(permit) = self.dialling.clone().try_acquire_owned() else {
                    return reply(Err(Error::Busy {
                        module: self.hub.name.clone(),
                    }));
                };
                let runner = self.current.current().runner;
                tokio::spawn(async move {
                    reply(dial(runner, asked.destination).await);
                    drop(permit);
                });
            }
            Command::DialDatagrams(_, reply) => reply(Err(Error::NoDatagrams {
                module: self.hub.name.clone(),
            })),
        }
    }

    /// Serve new connections with this configuration, once the module has accepted it.
    fn reconfigure(&self, config: Vec<u8>, reply: Reply<()>) {
        let Some(change) = self.current.begin() else {
            return reply(Err(self.busy()));
        };
        let before = self.current.current();
        let made = self.make(&before.module, config, before.generation);
        tokio::spawn(async move {
            let checked = async {
                let next = made?;
                next.runner.check_config().await?;
                change.set(next);
                Ok(())
            };
            reply(checked.await);
        });
    }

    /// Serve new connections with this module, and this configuration or the one in force, once
    /// the module has accepted it. The answer comes when the module has passed its probation.
    fn replace(&mut self, swap: Swap, reply: Reply<u32>) {
        let Swap {
            module,
            options,
            remember,
        } = swap;
        let Some(change) = self.current.begin() else {
            return reply(Err(self.busy()));
        };
        let config = options.config;
        let config = config.unwrap_or_else(|| self.current.current().config);
        let generation = self.next;
        self.next = self.next.wrapping_add(1);
        let made = self.make(&module, config, generation);
        let before = Arc::downgrade(&self.current.current().runner);
        let hub = self.hub.clone();
        tokio::spawn(async move {
            let checked = async {
                let next = made?;
                next.runner.check_config().await?;
                let remembered = remember.then_some(&module);
                let proved = change.prove(next, options.probation, remembered).await;
                proved.map_err(|(before, why)| before.runner.serves_again(&module, why))?;
                hub.keep_for(&module);
                // Without connections it is gone.
                if let (Some(drain), Some(before)) = (options.drain, before.upgrade()) {
                    before.end_connections_after(drain);
                }
                Ok(generation)
            };
            reply(checked.await);
        });
    }

    fn make(&self, module: &Module, config: Vec<u8>, generation: u32) -> Result<Current, Error> {
        let runner = make_runner(
            &self.hub,
            module,
            config.clone(),
            self.reach.clone(),
            self.log_level,
        )?;
        Ok(Current {
            generation,
            module: module.clone(),
            config,
            runner,
        })
    }

    fn busy(&self) -> Error {
        Error::Busy {
            module: self.hub.name.clone(),
        }
    }

    fn check_swap(&self, module: &Module) -> Result<(), String> {
        if module.water().is_none() {
            return Err(format!(
                "a {}, which cannot take the place of a WATER module; start another server",
                module.info().kind
            ));
        }
        let before = self.current.current().module;
        let lost = before
            .info()
            .roles
            .iter()
            .find(|role| !module.info().roles.contains(role));
        match lost {
            Some(role) => Err(format!(
                "has not the role of a {role}, which {} has",
                before.name()
            )),
            None => Ok(()),
        }
    }

    fn status(&self) -> Status {
        Status {
            phase: Phase::Running,
            generation: self.current.current().generation,
            generations: Vec::new(),
            module: Some(self.current.current().module),
            used: self.hub.used(),
            captures: Vec::new(),
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
    module.check_granted(&hub.name, [])?;
    let limits = module.granted().limits(module, hub.limits.clone());
    let settings = Settings {
        name: hub.name.clone(),
        // A server has a configuration, which is empty by default.
        config: (!config.is_empty()).then_some(config),
        sockets: Vec::new(),
        listens: None,
        drain: None,
        reach,
        connector: None,
        keys: Keys::new(),
        capture: None,
        accepting: None,
        log_level,
        counters: hub.counters.clone(),
        flows: hub.flows.limited(limits.flows),
        limits,
    };
    Ok(Arc::new(WaterRunner::new(module, settings)?))
}

impl AsRef<WaterRunner> for Current {
    fn as_ref(&self) -> &WaterRunner {
        &self.runner
    }
}

async fn accept(hub: Arc<Hub>, by: Current, wire: Wire) {
    let job = Job {
        target: None,
        accepted: Some(wire),
        config: None,
    };
    let offered = match by.runner.open(job).await {
        Ok(opened) => offer(&hub, by.generation, opened),
        Err(error) => Err(error),
    };
    match offered {
        Ok(waker) => waker.into_iter().for_each(Waker::wake),
        Err(error) => {
            tracing::debug!(target: "watm::server", server = hub.name.as_str(), "{error}");
        }
    }
}

fn offer(hub: &Hub, generation: u32, opened: Opened) -> Result<Option<Waker>, Error> {
    let refused = |code| Error::Refused {
        module: hub.name.clone(),
        code,
    };
    hub.check_backlog().map_err(refused)?;
    let flow = opened
        .flow
        .ok_or_else(|| refused(ErrorCode::InvalidState))?;
    Ok(hub.offer(generation, Flow::Stream(flow)))
}

async fn dial(
    runner: Arc<WaterRunner>,
    destination: Option<Destination>,
) -> Result<Begun<StreamFlow>, Error> {
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
