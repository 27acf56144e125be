//! A program of WASI behind a server: its connections to a reserved name are flows. `driver::start`
//! runs it in place of `run`.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, sleep};

use super::{Command, Plan, Swap, cannot_capture};
use crate::program::{Running, STARTING, check_module};
use crate::{Error, ErrorCode, FlowInfo, Keys, Phase, Status};
use watm_engine::hub::Hub;
use watm_engine::job::Settings;
use watm_net::flow::{Flow, GuestIo};
use watm_net::sockets::BoundSocket;
use watm_policy::access::MAX_LOOKUPS;
use watm_wasi::{APPLICATION, Application, Options, Ports, Start};

/// The label of the sockets that such a module can use.
const LISTEN: &str = "listen";

/// The interval at which a start looks whether the program listens.
const LOOK: Duration = Duration::from_millis(2);

pub(super) struct ProgramServer {
    hub: Arc<Hub>,
    running: Running,
    /// The number of programs that have run before this one.
    generation: u32,
}

impl ProgramServer {
    /// Starts the program, and waits until it listens or a second has passed. Needs the context of a
    /// tokio runtime.
    pub(super) async fn new(plan: Plan) -> Result<ProgramServer, Error> {
        let refuse =
            |reason: String| Err(Error::Options(format!("{}: {reason}", plan.module.name())));
        if plan.recorder.is_some() {
            return refuse("only components can be recorded; this is a program of WASI".to_owned());
        }
        let mut ports = Ports::default();
        let mut arguments = plan.arguments;
        for (label, socket) in plan.sockets {
            let BoundSocket::Tcp(listener, address) = socket else {
                return refuse(format!(
                    "a program takes TCP listeners in a server; remove \"{label}\""
                ));
            };
            if label != LISTEN {
                return refuse(format!(
                    "a program listens by the label \"{LISTEN}\"; remove \"{label}\""
                ));
            }
            let granted = ports.grant_tcp(listener, plan.admission.clone());
            granted.map_err(|error| Error::System(format!("the listening socket: {error}")))?;
            if arguments.is_none() {
                let application = format!("{APPLICATION}:{}", address.port());
                arguments = Some(vec![address.to_string(), application]);
            }
        }
        let hub = plan.hub;
        let settings = Settings {
            name: hub.name.clone(),
            config: (!plan.config.is_empty()).then_some(plan.config),
            sockets: Vec::new(),
            listens: None,
            drain: None,
            reach: plan.reach,
            connector: plan.connector,
            keys: Keys::new(),
            capture: None,
            accepting: None,
            log_level: plan.log_level,
            counters: hub.counters.clone(),
            flows: hub.flows.clone(),
            descriptors: hub.descriptors.clone(),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            limits: hub.limits.clone(),
        };
        let options = Options {
            arguments: arguments.unwrap_or_default(),
            ports,
            own: None,
            application: Some(application(&hub)),
        };
        let start = Start::new(&plan.module, settings, options)?;
        let running = Running::new(start, &hub.name, &hub.counters);
        let server = ProgramServer {
            hub,
            running,
            generation: 0,
        };
        server.started().await?;
        Ok(server)
    }

    /// Waits until the program listens, or a second has passed.
    async fn started(&self) -> Result<(), Error> {
        let begin = Instant::now();
        let mut ended = pin!(self.running.ended());
        let serving = self.running.serving();
        while !serving.ports().is_in_use() && begin.elapsed() < STARTING {
            let mut wait = pin!(sleep(LOOK));
            let result = poll_fn(|cx| match ended.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => wait.as_mut().poll(cx).map(|()| None),
            });
            match result.await {
                Some(Err(error)) => return Err(error),
                Some(Ok(())) => {
                    return Err(Error::Trap {
                        module: self.hub.name.clone(),
                        reason: "ended without listening; check its arguments".to_owned(),
                    });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Runs until the application closes the command channel, or the program ends by itself.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let ended = self.running.ended();
        let mut ended = pin!(ended);
        poll_fn(|cx| {
            loop {
                match commands.poll_recv(cx) {
                    Poll::Ready(Some(command)) => self.answer(command),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            ended.as_mut().poll(cx).map(drop)
        })
        .await;
        self.running.close().await;
    }

    fn answer(&mut self, command: Command) {
        let refused = |code| Error::Refused {
            module: self.hub.name.clone(),
            code,
        };
        match command {
            Command::Status(reply) => reply(Ok(self.status())),
            Command::ClientConfigs(_, reply) => reply(Err(refused(ErrorCode::NotSupported))),
            Command::Reconfigure(config, reply) => {
                let next = self.running.serving().with_config(config);
                self.running.replace(next);
                reply(Ok(()));
            }
            Command::Swap(swap, reply) => {
                let swapped = self.swap(&swap);
                reply(swapped.map_err(|error| Error::Swap {
                    module: swap.module.name().to_owned(),
                    reason: error.to_string(),
                }));
            }
            Command::Capture(_, reply) => reply(Err(cannot_capture(&self.hub.name))),
            // A program has no state that another server could begin with.
            Command::Snapshot(reply) => reply(Ok(Vec::new())),
            Command::StopAccepting(reply) => {
                self.running.serving().ports().stop();
                reply(Ok(()));
            }
            Command::Dial(_, reply) => reply(Err(refused(ErrorCode::NotSupported))),
            Command::DialDatagrams(_, reply) => reply(Err(Error::NoDatagrams {
                module: self.hub.name.clone(),
            })),
        }
    }

    /// Runs another program on the same listeners.
    fn swap(&mut self, swap: &Swap) -> Result<u32, Error> {
        check_module(&swap.module)?;
        let mut next = self.running.serving().with_module(&swap.module)?;
        if let Some(config) = &swap.options.config {
            next = next.with_config(config.clone());
        }
        if swap.remember {
            swap.module.accept()?;
        }
        self.running.replace(next);
        self.generation += 1;
        self.hub.continue_usage_record(&swap.module);
        Ok(self.generation)
    }

    fn status(&self) -> Status {
        Status {
            phase: Phase::Running,
            generation: self.generation,
            generations: Vec::new(),
            module: Some(self.running.serving().module().clone()),
            used: self.hub.used(),
            captures: Vec::new(),
            peers: Vec::new(),
            flows: u32::try_from(self.hub.flows.open()).unwrap_or(u32::MAX),
            counters: self.hub.host_counters(),
        }
    }
}

/// Returns the function that makes a connection of the program a flow.
fn application(hub: &Arc<Hub>) -> Application {
    let hub = hub.clone();
    Arc::new(move |info: FlowInfo| {
        hub.check_backlog()?;
        let permit = hub.flows.permit().ok_or_else(|| hub.refuse_for_flows())?;
        let (io, flow) = GuestIo::pair(info, &hub.limits, permit, &hub.counters.account);
        let waker = hub.offer(0, Flow::Stream(flow));
        waker.into_iter().for_each(Waker::wake);
        Ok(io)
    })
}
