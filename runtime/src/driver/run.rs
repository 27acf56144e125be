use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use super::Command;
use super::backoff::Backoff;
use crate::component::{Grants, Instance, StartError, Trap, Wakeup};
use crate::engine::Ticking;
use crate::net::Port;
use crate::{Error, Module, Phase, Status};

/// Calls in a row without looking at the sockets, while the application keeps tokens
/// ready. A look costs a system call.
const CALLS_BEFORE_LOOK: u32 = 8;

/// `again` in a row with no token ready, after which the module is made to wait: it
/// says it has work but moves nothing.
const IDLE_AGAINS: u32 = 64;
/// How long then.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// How often sockets are emptied while there is no instance.
const DISCARD_INTERVAL: Duration = Duration::from_millis(20);

/// The thread's state, besides the instance.
pub(super) struct Driver {
    module: Module,
    /// The latest that an instance accepted.
    config: Vec<u8>,
    grants: Grants,
    _ticking: Ticking,
}

/// Why an instance is not called any more.
enum End {
    Closed,
    Failed(Trap),
}

impl From<Trap> for End {
    fn from(trap: Trap) -> End {
        End::Failed(trap)
    }
}

enum Event {
    Process,
    Command(Command),
    Closed,
}

impl Driver {
    pub(super) fn new(module: Module, config: Vec<u8>, grants: Grants, ticking: Ticking) -> Driver {
        Driver {
            module,
            config,
            grants,
            _ticking: ticking,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.grants.hub.name
    }

    /// A new instance that has accepted the configuration.
    pub(super) fn instantiate(&self) -> Result<Instance, StartError> {
        let mut instance = Instance::new(&self.module, &self.grants, 0).map_err(StartError::Trap)?;
        instance.start(&self.config, None)?;
        Ok(instance)
    }

    /// Until the commands end.
    pub(super) async fn run(
        mut self,
        mut instance: Instance,
        mut commands: mpsc::Receiver<Command>,
    ) {
        let mut backoff = Backoff::new(Instant::now());
        loop {
            let End::Failed(trap) = self.step(&mut instance, &mut commands).await else {
                return;
            };
            // Resets its flows and gives its sockets back.
            drop(instance);
            self.grants.hub.withdraw_offers();
            if self.grants.hub.is_closing() {
                return;
            }
            self.report(&trap);
            match self.restart(&mut backoff, &mut commands).await {
                Some(next) => instance = next,
                None => return,
            }
        }
    }

    /// Call the instance whenever it can do something.
    async fn step(
        &mut self,
        instance: &mut Instance,
        commands: &mut mpsc::Receiver<Command>,
    ) -> End {
        let mut ready = Vec::new();
        let mut wakeup = Wakeup::Again;
        let mut pause = Pause::new();
        loop {
            match pause.until(wakeup, instance, commands).await {
                Event::Closed => return End::Closed,
                Event::Command(command) => {
                    if let Err(trap) = self.answer(instance, command) {
                        return trap.into();
                    }
                    // A new configuration may have new timers.
                    wakeup = Wakeup::Again;
                }
                Event::Process => {
                    ready.clear();
                    instance.ready().take(&mut ready);
                    self.grants.hub.counters.process_calls.add(1);
                    wakeup = match instance.process(&ready) {
                        Ok(wakeup) => wakeup,
                        Err(trap) => return trap.into(),
                    };
                    pause.called(wakeup, &ready);
                }
            }
        }
    }

    fn answer(&mut self, instance: &mut Instance, command: Command) -> Result<(), Trap> {
        match command {
            Command::Status(reply) => match instance.status() {
                Ok(status) => {
                    let mut counters = status.counters;
                    counters.extend(self.grants.hub.host_counters());
                    reply(Ok(Status {
                        peers: status.peers,
                        flows: status.flows,
                        counters,
                        ..self.status(Phase::Running)
                    }));
                }
                Err(trap) => return self.trapped(trap, reply),
            },
            Command::ClientConfigs(public, reply) => match instance.client_configs(public) {
                Ok(configs) => reply(configs.map_err(|code| Error::Refused {
                    module: self.name().to_owned(),
                    code,
                })),
                Err(trap) => return self.trapped(trap, reply),
            },
            Command::Reconfigure(config, reply) => match instance.reconfigure(&config) {
                Ok(()) => {
                    self.config = config;
                    reply(Ok(()));
                }
                Err(StartError::Refused(reason)) => reply(Err(Error::Config {
                    module: self.name().to_owned(),
                    reason,
                })),
                Err(StartError::Trap(trap)) => return self.trapped(trap, reply),
            },
            Command::Dial(dial, reply) => match instance.dial(dial) {
                Ok(begun) => reply(begun),
                Err(trap) => return self.trapped(trap, reply),
            },
        }
        Ok(())
    }

    fn trapped<T>(&self, trap: Trap, reply: super::Reply<T>) -> Result<(), Trap> {
        reply(Err(Error::Trap {
            module: self.name().to_owned(),
            reason: trap.reason.clone(),
        }));
        Err(trap)
    }

    fn report(&self, trap: &Trap) {
        tracing::error!(
            target: "watm::server",
            server = self.name(),
            "the module failed: {}; its flows are reset and it is started again",
            trap.reason
        );
        if let Some(backtrace) = &trap.backtrace {
            tracing::debug!(target: "watm::server", server = self.name(), "{backtrace}");
        }
    }

    /// Try until an instance starts; `None`: the server is to close.
    async fn restart(
        &mut self,
        backoff: &mut Backoff,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Option<Instance> {
        let mut phase = Phase::Restarting;
        loop {
            let wait = backoff.failed(Instant::now());
            self.stand_in(wait, &phase, commands).await?;
            match self.instantiate() {
                Ok(instance) => {
                    backoff.started(Instant::now());
                    self.grants.hub.counters.restarts.add(1);
                    tracing::info!(
                        target: "watm::server",
                        server = self.name(),
                        "the module runs again"
                    );
                    return Some(instance);
                }
                Err(error) => {
                    let reason = match error {
                        StartError::Refused(reason) => reason,
                        StartError::Trap(trap) => trap.reason,
                    };
                    tracing::error!(
                        target: "watm::server",
                        server = self.name(),
                        "the module does not start again: {reason}"
                    );
                    phase = Phase::Failed(reason);
                    self.grants.hub.withdraw_offers();
                }
            }
        }
    }

    /// Keep the sockets empty and answer for the module; `None`: the server is to close.
    async fn stand_in(
        &self,
        wait: Duration,
        phase: &Phase,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Option<()> {
        let end = Instant::now() + wait;
        loop {
            for (_, port) in self.grants.ports.iter() {
                if let Port::Udp(port) = port {
                    port.discard();
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(());
            }
            let mut pause = std::pin::pin!(sleep(left.min(DISCARD_INTERVAL)));
            let command = poll_fn(|cx| {
                if let Poll::Ready(command) = commands.poll_recv(cx) {
                    return Poll::Ready(Some(command));
                }
                pause.as_mut().poll(cx).map(|()| None)
            });
            match command.await {
                None => {}
                Some(None) => return None,
                Some(Some(command)) => self.excuse(command, phase),
            }
        }
    }

    fn excuse(&self, command: Command, phase: &Phase) {
        let restarting = || Error::Restarting {
            module: self.name().to_owned(),
        };
        match command {
            Command::Status(reply) => reply(Ok(self.status(phase.clone()))),
            Command::ClientConfigs(_, reply) => reply(Err(restarting())),
            Command::Reconfigure(_, reply) => reply(Err(restarting())),
            Command::Dial(_, reply) => reply(Err(restarting())),
        }
    }

    /// What the host knows by itself.
    fn status(&self, phase: Phase) -> Status {
        let hub = &self.grants.hub;
        Status {
            phase,
            generation: u32::try_from(hub.counters.restarts.get()).unwrap_or(u32::MAX),
            peers: Vec::new(),
            flows: 0,
            counters: hub.host_counters(),
        }
    }
}

/// Waits between two calls.
struct Pause {
    timer: Pin<Box<Sleep>>,
    calls: u32,
    idle_agains: u32,
    /// Whose turn it is, so that neither commands nor tokens wait for ever.
    command_first: bool,
}

impl Pause {
    fn new() -> Pause {
        Pause {
            timer: Box::pin(sleep(Duration::ZERO)),
            calls: 0,
            idle_agains: 0,
            command_first: true,
        }
    }

    /// The module was called with these tokens, and wants this.
    fn called(&mut self, wakeup: Wakeup, ready: &[u64]) {
        if wakeup == Wakeup::Again && ready.is_empty() {
            self.idle_agains = self.idle_agains.saturating_add(1);
        } else {
            self.idle_agains = 0;
        }
    }

    async fn until(
        &mut self,
        wakeup: Wakeup,
        instance: &Instance,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Event {
        let now = Instant::now();
        let deadline = match wakeup {
            Wakeup::OnReady | Wakeup::Finished => None,
            Wakeup::Again if self.idle_agains >= IDLE_AGAINS => Some(now + IDLE_PAUSE),
            Wakeup::Again => Some(now),
            Wakeup::At(instant) => Some(instant),
        };
        let due = deadline.is_some_and(|deadline| deadline <= now);
        self.calls += 1;
        if due || self.calls >= CALLS_BEFORE_LOOK {
            // Lets the runtime look at the sockets.
            self.calls = 0;
            tokio::task::yield_now().await;
        }
        if let Some(deadline) = deadline
            && !due
            && self.timer.deadline().into_std() != deadline
        {
            self.timer.as_mut().reset(deadline.into());
        }
        self.command_first = !self.command_first;
        let command_first = self.command_first;
        poll_fn(|cx| {
            let mut command = |cx: &mut Context<'_>| match commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => Some(Event::Command(command)),
                Poll::Ready(None) => Some(Event::Closed),
                Poll::Pending => None,
            };
            if command_first && let Some(event) = command(cx) {
                return Poll::Ready(event);
            }
            let process = due
                || instance.ready().poll_ready(cx).is_ready()
                || (deadline.is_some() && self.timer.as_mut().poll(cx).is_ready());
            if process {
                return Poll::Ready(Event::Process);
            }
            if !command_first && let Some(event) = command(cx) {
                return Poll::Ready(event);
            }
            // The runtime looks at the sockets before it comes back.
            self.calls = 0;
            Poll::Pending
        })
        .await
    }
}
