//! A WATER module behind a server: one instance for each connection, all on the server's thread.
//! `driver::start` runs it in place of `run`.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Command, Plan, Reply, Swap, cannot_capture};
use crate::incoming::serve_all;
use crate::water::{Replacement, WaterModule, some_config};
use crate::{Destination, Error, ErrorCode, Keys, Module, Phase, Reach, Role, Status, Target};
use watm_component::{Attempts, BegunDial};
use watm_engine::hub::Hub;
use watm_engine::job::{Job, Opened, Settings};
use watm_net::connect::{Wire, WireKind};
use watm_net::flow::{Flow, StreamFlow};
use watm_net::sockets::{Admission, Admitted, BoundSocket};
use watm_water::{Serving, WaterRunner};

/// The label of the only socket that such a module can use.
const LISTEN: &str = "listen";

pub(super) struct WaterServer {
    hub: Arc<Hub>,
    listener: Option<TcpListener>,
    /// Decides which connections it takes.
    admission: Option<Arc<dyn Admission>>,
    /// True once the listener must be closed.
    ending: watch::Sender<bool>,
    /// The module and configuration of new connections; a swap or reconfiguration changes it.
    module: Arc<WaterModule>,
    /// The permits of dials in progress.
    dialling: Arc<Semaphore>,
}

impl WaterServer {
    /// Starts the server, and has the module check its configuration. Needs the context of a tokio
    /// runtime.
    pub(super) async fn new(plan: Plan) -> Result<WaterServer, Error> {
        let refuse =
            |reason: String| Err(Error::Options(format!("{}: {reason}", plan.module.name())));
        if plan.recorder.is_some() {
            return refuse("only components can be recorded; this is a WATER module".to_owned());
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
                        "a WATER module takes one socket, a TCP listener with the label \
                         \"{LISTEN}\"; remove \"{label}\""
                    ));
                }
            }
        }
        if listener.is_some() && !plan.module.info().roles.contains(&Role::Listener) {
            return refuse(format!("does not have the role {}", Role::Listener));
        }
        let dialling = Arc::new(Semaphore::new(plan.hub.limits.handshakes));
        let settings = settings(&plan.hub, plan.config, plan.reach, plan.log_level);
        let module = WaterModule::new(&plan.module, settings, listener.is_some())?;
        module.check_config().await?;
        Ok(WaterServer {
            module: Arc::new(module),
            hub: plan.hub,
            listener,
            admission: plan.admission,
            ending: watch::channel(false).0,
            dialling,
        })
    }

    /// Runs until the application closes the command channel.
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
        let (hub, module) = (self.hub.clone(), self.module.clone());
        let admission = self.admission.clone();
        let at_once = hub.limits.handshakes;
        let mut asked = self.ending.subscribe();
        let ending = async move {
            // An error means that the whole server ends.
            let _ = asked.wait_for(|ending| *ending).await;
        };
        Box::pin(serve_all(listener, at_once, ending, move |wire| {
            hub.counters.connections_accepted.add(1);
            accept(hub.clone(), module.serving(), admission.clone(), wire)
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
                let module = self.module.clone();
                let config = some_config(config);
                tokio::spawn(async move { reply(module.reconfigure(config).await) });
            }
            Command::Swap(swap, reply) => match self.check_swap(&swap.module) {
                Ok(()) => self.replace(swap, reply),
                Err(reason) => reply(Err(Error::Swap {
                    module: swap.module.name().to_owned(),
                    reason,
                })),
            },
            Command::Capture(_, reply) => reply(Err(cannot_capture(&self.hub.name))),
            // Each connection has an instance of its own, so there is nothing to pass on.
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
                let runner = self.module.serving().runner;
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

    /// Makes new connections use this module, with this configuration or the one in force. Replies
    /// when the module has passed its probation.
    fn replace(&self, swap: Swap, reply: Reply<u32>) {
        let (hub, serving) = (self.hub.clone(), self.module.clone());
        let replacement = Replacement {
            module: swap.module.clone(),
            config: match swap.options.config {
                Some(config) => some_config(config),
                None => serving.serving().config,
            },
            probation: swap.options.probation,
            remembers: swap.remember,
            drain: swap.options.drain,
        };
        tokio::spawn(async move {
            let replaced = serving.replace(replacement).await;
            if replaced.is_ok() {
                hub.continue_usage_record(&swap.module);
            }
            reply(replaced);
        });
    }

    fn check_swap(&self, module: &Module) -> Result<(), String> {
        if module.is_component() {
            return Err(format!(
                "is a {} and cannot replace a WATER module; start another server",
                module.info().kind
            ));
        }
        let before = self.module.serving().module;
        let lost = before
            .info()
            .roles
            .iter()
            .find(|role| !module.info().roles.contains(role));
        match lost {
            Some(role) => Err(format!(
                "does not have the role {role}, which {} has",
                before.name()
            )),
            None => Ok(()),
        }
    }

    fn status(&self) -> Status {
        let serving = self.module.serving();
        Status {
            phase: Phase::Running,
            generation: serving.generation,
            generations: Vec::new(),
            module: Some(serving.module),
            used: self.hub.used(),
            captures: Vec::new(),
            peers: Vec::new(),
            flows: u32::try_from(self.hub.flows.open()).unwrap_or(u32::MAX),
            counters: self.hub.host_counters(),
        }
    }
}

/// Returns the settings of connections on behalf of a server.
fn settings(hub: &Hub, config: Vec<u8>, reach: Reach, log_level: tracing::Level) -> Settings {
    Settings {
        name: hub.name.clone(),
        config: some_config(config),
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
        flows: hub.flows.clone(),
        descriptors: hub.descriptors.clone(),
        lookups: hub.lookups.clone(),
        limits: hub.limits.clone(),
    }
}

/// Opens a connection, and offers it when its handshake is over. Returns when an instance has it.
async fn accept(hub: Arc<Hub>, by: Serving, admission: Option<Arc<dyn Admission>>, wire: Wire) {
    let client = wire.peer;
    let admitted = match (admission, wire.peer.zip(wire.local)) {
        (Some(admission), Some((remote, local))) => {
            let Some(admitted) = Admitted::new(admission, remote, local) else {
                return reset(wire);
            };
            Some(admitted)
        }
        _ => None,
    };
    let job = Job {
        target: None,
        accepted: Some(wire),
        config: None,
    };
    let opened = by.runner.open(job).await;
    tokio::spawn(async move {
        let offered = match opened {
            Ok(opened) => offer_when_ready(&hub, by.generation, opened, admitted).await,
            Err(error) => Err(error),
        };
        if let Err(error) = offered {
            let client = client.map(tracing::field::display);
            tracing::debug!(target: "watm::server", server = hub.name.as_str(), client, "{error}");
        }
    });
}

/// Makes the client see a reset.
fn reset(wire: Wire) {
    if let WireKind::Tcp(stream) = wire.kind {
        // If this fails, the client sees an end.
        let _ = stream.set_zero_linger();
    }
}

async fn offer_when_ready(
    hub: &Hub,
    generation: u32,
    mut opened: Opened,
    admitted: Option<Admitted>,
) -> Result<(), Error> {
    {
        let mut ready = pin!(opened.established(&hub.name));
        let ended = poll_fn(|cx| {
            let ready = ready.as_mut().poll(cx);
            if ready.is_pending()
                && let Some(admitted) = &admitted
            {
                let closed = || Error::Handshake {
                    module: hub.name.clone(),
                    reason: "the host closed the connection".to_owned(),
                };
                return admitted.poll_closing(cx).map(|()| Err(closed()));
            }
            ready
        });
        ended.await?;
    }
    let waker = offer(hub, generation, opened)?;
    waker.into_iter().for_each(Waker::wake);
    Ok(())
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
) -> Result<BegunDial<StreamFlow>, Error> {
    let job = Job {
        target: destination.map(Target::tcp),
        accepted: None,
        config: None,
    };
    let opened = runner.open(job).await?;
    let flow = opened
        .flow
        .ok_or_else(|| Error::System("the connection has no application".to_owned()))?;
    Ok(BegunDial {
        flow,
        attempts: Attempts::none(),
    })
}
