//! The run loop of a server's thread: waits for events, and calls the generations of the module.
//! `driver::start` spawns it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use super::generation::Generation;
use super::pace::Pace;
use super::restart::Rest;
use super::swap::{Candidate, Predecessor, Probation, Started};
use super::{COMMAND_QUEUE, Command, Reply, cannot_capture};
use crate::backoff::Backoff;
use crate::{Capture, Error, GenerationStatus, Module, Phase, Status};
use watm_component::{Grants, StartError, Trap};
use watm_net::ports::Port;
use watm_net::sockets::NetworkChanges;

/// The most calls in a row without a look at the sockets, while the application keeps tokens ready.
/// A look costs a system call.
const CALLS_BEFORE_LOOK: u32 = 8;

/// The longest rest of a module after which it still answers for its status. During a longer one
/// the host answers alone.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct Driver {
    pub(super) grants: Grants,
    /// The module that serves, or is about to start again.
    pub(super) module: Module,
    /// The latest configuration that an instance of it accepted.
    pub(super) config: Vec<u8>,
    /// The running generations, which take turns. The serving one is among them, unless it failed.
    pub(super) generations: Vec<Generation>,
    /// The number of the next generation.
    pub(super) next: u32,
    /// The pause between two instances, after a failure.
    pub(super) rest: Option<Rest>,
    pub(super) backoff: Backoff,
    /// A module that is starting, to be swapped in.
    pub(super) candidate: Option<Candidate>,
    /// A swap on probation.
    pub(super) probation: Option<Probation>,
    /// The module before the last swap, which served well.
    pub(super) fallback: Option<Predecessor>,
    /// The snapshot that the serving module started with, for as long as there are older
    /// generations.
    pub(super) inherited: Option<Vec<u8>>,
    /// The number of failures since the last swap.
    pub(super) failures: u32,
    /// The time at which something other than the modules is due.
    alarm: Alarm,
    /// The changes of the network, if a socket needs them.
    network: Option<NetworkChanges>,
    ready: Vec<u64>,
    pace: Pace,
    calls: u32,
    /// The command queue and the generations take turns, so that none starves.
    command_first: bool,
    first: usize,
    /// Commands that wait until the module has CPU time again.
    held: VecDeque<Command>,
}

enum Event {
    Process(usize),
    Command(Command),
    /// The candidate of a swap has started, or failed to.
    Candidate(Box<Started>),
    Alarm,
    /// The machine's addresses or routes have changed.
    Network,
    Closed,
}

/// One timer for everything that the driver itself has to do.
struct Alarm {
    timer: Pin<Box<Sleep>>,
    set: bool,
}

impl Driver {
    /// Starts a first instance, which accepts the configuration, and the snapshot of a module
    /// beside it, if there is one.
    pub(super) fn new(
        module: Module,
        config: Vec<u8>,
        beside: Option<&[u8]>,
        grants: Grants,
    ) -> Result<Driver, StartFailure> {
        let bound = |port: &Port| matches!(port, Port::Udp(port) if port.is_bound());
        let network = match grants.ports.iter().any(|(_, port)| bound(port)) {
            true => NetworkChanges::new(),
            false => None,
        };
        let mut driver = Driver {
            grants,
            module,
            config,
            generations: Vec::new(),
            next: 0,
            rest: None,
            backoff: Backoff::new(Instant::now()),
            candidate: None,
            probation: None,
            fallback: None,
            inherited: None,
            failures: 0,
            alarm: Alarm {
                timer: Box::pin(sleep(Duration::ZERO)),
                set: false,
            },
            network,
            ready: Vec::new(),
            pace: Pace::new(Instant::now()),
            calls: 0,
            command_first: true,
            first: 0,
            held: VecDeque::new(),
        };
        let first = driver.instantiate(beside)?;
        let number = first.number;
        driver.generations.push(first);
        if beside.is_some() {
            // The module was started as in a swap, so it waits until it is told that it serves.
            driver.grants.mailboxes.serve(number);
            driver.announce();
        }
        Ok(driver)
    }

    pub(super) fn name(&self) -> &str {
        &self.grants.hub.name
    }

    /// Runs until the application closes the command channel.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            match self.event(&mut commands).await {
                Event::Closed => return,
                Event::Command(command) => self.obey(command).await,
                Event::Candidate(started) => self.candidate_started(*started),
                // After a rest, those who have waited are first.
                Event::Process(index) => match self.held_command() {
                    Some(command) => self.obey(command).await,
                    None => self.process(index),
                },
                Event::Alarm => self.tend(Instant::now()),
                Event::Network => self.network_changed(),
            }
            if self.grants.hub.is_closing() {
                return;
            }
        }
    }

    /// Returns the serving generation.
    pub(super) fn serving(&mut self) -> Option<&mut Generation> {
        self.generations
            .iter_mut()
            .find(|generation| generation.retired.is_none())
    }

    fn process(&mut self, index: usize) {
        let Some(generation) = self.generations.get_mut(index) else {
            return;
        };
        self.grants.hub.counters.process_calls.add(1);
        match generation.process(&mut self.ready) {
            Ok(()) => {
                if generation.retired.as_ref().is_some_and(|r| r.finished) {
                    self.sweep();
                }
            }
            Err(trap) => {
                let number = generation.number;
                self.failed(number, trap);
            }
        }
    }

    /// Tells all generations that the network has changed.
    fn network_changed(&mut self) {
        for (_, port) in self.grants.ports.iter() {
            if let Port::Udp(port) = port {
                port.network_changed();
            }
        }
        let mut failures = Vec::new();
        for generation in &mut self.generations {
            match generation.instance.network_changed() {
                Ok(()) => generation.changed(),
                Err(trap) => failures.push((generation.number, trap)),
            }
        }
        for (number, trap) in failures {
            self.failed(number, trap);
        }
    }

    /// Answers a command, or holds it while the module rests.
    async fn obey(&mut self, command: Command) {
        let rest = self.rest_of_serving(Instant::now());
        let waits = match &command {
            Command::StopAccepting(_) => false,
            Command::Status(_) => !rest.is_zero() && rest <= STATUS_PATIENCE,
            _ => !rest.is_zero(),
        };
        if waits {
            return self.hold(command);
        }
        let swaps = matches!(command, Command::Swap(..));
        self.answer(command);
        if swaps {
            self.wait_for_candidate().await;
        }
    }

    fn hold(&mut self, command: Command) {
        if self.held.len() >= COMMAND_QUEUE {
            let module = self.name().to_owned();
            return command.refuse(Error::Busy { module });
        }
        self.held.push_back(command);
    }

    /// Returns a command that has waited, if the module has CPU time again.
    fn held_command(&mut self) -> Option<Command> {
        if self.held.is_empty() || !self.rest_of_serving(Instant::now()).is_zero() {
            return None;
        }
        self.held.pop_front()
    }

    /// Returns how long the serving generation rests, because it has used up its share of a core.
    fn rest_of_serving(&mut self, now: Instant) -> Duration {
        let until = self.serving().and_then(|it| it.instance.rests_until(now));
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn answer(&mut self, command: Command) {
        match command {
            Command::Status(reply) => self.answer_status(reply),
            Command::ClientConfigs(public, reply) => {
                self.ask(reply, |driver, generation| {
                    let configs = generation.instance.client_configs(public)?;
                    Ok(configs.map_err(|code| Error::Refused {
                        module: driver.to_owned(),
                        code,
                    }))
                });
            }
            // The candidate starts with the former configuration.
            Command::Reconfigure(_, reply) | Command::Capture(_, reply)
                if self.candidate.is_some() =>
            {
                let module = self.name().to_owned();
                reply(Err(Error::Busy { module }));
            }
            Command::Reconfigure(config, reply) => {
                let accepted = self.ask(reply, |name, generation| {
                    reconfigured(name, generation, &config)
                });
                if accepted {
                    self.config = config;
                }
            }
            Command::Capture(capture, reply) => self.capture(capture, reply),
            Command::Dial(dial, reply) => {
                self.ask(reply, |_, generation| generation.instance.dial(dial));
            }
            Command::DialDatagrams(dial, reply) => {
                self.ask(reply, |_, generation| {
                    generation.instance.dial_datagrams(dial)
                });
            }
            Command::Swap(swap, reply) => self.swap(swap, reply),
            Command::Snapshot(reply) => {
                self.ask(reply, |_, generation| {
                    generation.instance.snapshot().map(Ok)
                });
            }
            Command::StopAccepting(reply) => {
                for (_, port) in self.grants.ports.iter() {
                    if let Port::Tcp(port) = port {
                        port.stop();
                    }
                }
                reply(Ok(()));
            }
        }
        self.set_alarm();
    }

    /// Has the serving generation answer. Returns true if it did, and not with an error.
    fn ask<T>(
        &mut self,
        reply: Reply<T>,
        ask: impl FnOnce(&str, &mut Generation) -> Result<Result<T, Error>, Trap>,
    ) -> bool {
        let name = self.name().to_owned();
        let Some(generation) = self.serving() else {
            reply(Err(Error::Restarting { module: name }));
            return false;
        };
        let answer = ask(&name, generation);
        // A new configuration may have new timers.
        generation.changed();
        match answer {
            Ok(answer) => {
                let good = answer.is_ok();
                reply(answer);
                good
            }
            Err(trap) => {
                let number = generation.number;
                reply(Err(Error::Trap {
                    module: name,
                    reason: trap.reason.clone(),
                }));
                self.failed(number, trap);
                false
            }
        }
    }

    /// Begins or ends a capture, which the module learns from its configuration, given once more.
    fn capture(&mut self, capture: Option<Capture>, reply: Reply<()>) {
        let granted = self.module.granted().capture(capture.as_ref());
        let before = std::mem::replace(&mut self.grants.capture, capture);
        let config = self.config.clone();
        let taken = self.ask(reply, |name, generation| {
            generation.instance.set_capture(granted);
            let accepted = reconfigured(name, generation, &config)?;
            Ok(
                accepted.and_then(|()| match generation.instance.knows_captures() {
                    true => Ok(()),
                    false => Err(cannot_capture(name)),
                }),
            )
        });
        if !taken {
            let granted = self.module.granted().capture(before.as_ref());
            self.grants.capture = before;
            if let Some(generation) = self.serving() {
                generation.instance.set_capture(granted);
            }
        }
    }

    fn captures(&self) -> Vec<String> {
        let granted = self.module.granted();
        let capture = granted.capture(self.grants.capture.as_ref());
        capture.map_or_else(Vec::new, |capture| capture.describe())
    }

    fn answer_status(&mut self, reply: Reply<Status>) {
        let mut status = Status {
            phase: self
                .rest
                .as_ref()
                .map_or(Phase::Running, |rest| rest.phase.clone()),
            generation: self.grants.mailboxes.serving(),
            generations: Vec::new(),
            module: Some(self.module.clone()),
            used: self.grants.hub.used(),
            captures: self.captures(),
            peers: Vec::new(),
            flows: 0,
            counters: self.grants.hub.host_counters(),
        };
        let mut failures = Vec::new();
        let now = Instant::now();
        for generation in &mut self.generations {
            let said = match generation.status(now) {
                Ok(said) => said,
                Err(trap) => {
                    failures.push((generation.number, trap));
                    continue;
                }
            };
            let flows = said.as_ref().map_or(0, |said| said.flows);
            status.flows = status.flows.saturating_add(flows);
            status.generations.push(GenerationStatus {
                number: generation.number,
                module: generation.module.name().to_owned(),
                sha256: generation.module.info().sha256.clone(),
                flows,
                age: generation.since.elapsed(),
                draining: generation.retired.as_ref().map(|r| r.since.elapsed()),
            });
            if generation.retired.is_none()
                && let Some(said) = said
            {
                status.peers = said.peers;
                status.counters.extend(said.counters);
            }
        }
        status.generations.sort_by_key(|known| known.number);
        let lost = failures
            .iter()
            .find(|(number, _)| *number == status.generation);
        match lost {
            Some((_, trap)) => reply(Err(Error::Trap {
                module: self.name().to_owned(),
                reason: trap.reason.clone(),
            })),
            None => reply(Ok(status)),
        }
        for (number, trap) in failures {
            self.failed(number, trap);
        }
    }

    /// Does what is due apart from the modules.
    fn tend(&mut self, now: Instant) {
        self.tend_rest(now);
        self.tend_swap(now);
        self.set_alarm();
    }

    /// Sets the alarm. Called when one of the times has changed.
    pub(super) fn set_alarm(&mut self) {
        let rest = self.rest.as_ref().map(Rest::due);
        let probation = self.probation.as_ref().map(Probation::due);
        let drains = self
            .generations
            .iter()
            .filter_map(|generation| generation.retired.as_ref()?.deadline);
        let due = rest.into_iter().chain(probation).chain(drains).min();
        self.alarm.set = due.is_some();
        if let Some(due) = due {
            self.alarm.timer.as_mut().reset(due.into());
        }
    }

    /// Coalesces: pauses briefly if calls come densely, and the modules want them further apart.
    fn let_more_come(&mut self, now: Instant) {
        let wanted = self.generations.iter().map(Generation::coalescing).min();
        let interval = wanted.unwrap_or_default();
        if interval.is_zero() || self.generations.iter().any(Generation::has_work) {
            return;
        }
        let pause = self.pace.pause(now, interval);
        if !pause.is_zero() {
            // The thread sleeps, because timers of the executor have a resolution of a millisecond
            // at best.
            thread::sleep(pause);
        }
    }

    /// Waits for the next event.
    async fn event(&mut self, commands: &mut mpsc::Receiver<Command>) -> Event {
        if let Some(command) = self.held_command() {
            return Event::Command(command);
        }
        let now = Instant::now();
        let mut due = false;
        for generation in &mut self.generations {
            due |= generation.arm(now);
        }
        if !due {
            self.let_more_come(now);
        }
        self.calls += 1;
        if due || self.calls >= CALLS_BEFORE_LOOK {
            // Yielding lets the runtime look at the sockets.
            self.calls = 0;
            tokio::task::yield_now().await;
        }
        self.command_first = !self.command_first;
        self.first = self.first.wrapping_add(1);
        poll_fn(|cx| {
            let mut command = |cx: &mut Context<'_>| match commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => Some(Event::Command(command)),
                Poll::Ready(None) => Some(Event::Closed),
                Poll::Pending => None,
            };
            if self.command_first
                && let Some(event) = command(cx)
            {
                return Poll::Ready(event);
            }
            if let Some(candidate) = &mut self.candidate
                && let Poll::Ready(started) = candidate.poll(cx)
            {
                return Poll::Ready(Event::Candidate(Box::new(started)));
            }
            if self.alarm.set && self.alarm.timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Alarm);
            }
            if let Some(network) = &mut self.network
                && network.poll(cx).is_ready()
            {
                return Poll::Ready(Event::Network);
            }
            let count = self.generations.len();
            for turn in 0..count {
                let index = self.first.wrapping_add(turn) % count;
                if self.generations[index].poll_due(cx).is_ready() {
                    return Poll::Ready(Event::Process(index));
                }
            }
            if !self.command_first
                && let Some(event) = command(cx)
            {
                return Poll::Ready(event);
            }
            // The runtime looks at the sockets before it returns here.
            self.calls = 0;
            Poll::Pending
        })
        .await
    }
}

impl Drop for Driver {
    /// Completes the capture before the server's end is reported.
    fn drop(&mut self) {
        if let Some(capture) = &self.grants.capture {
            capture.flush();
        }
    }
}

/// Gives the module a configuration.
fn reconfigured(
    name: &str,
    generation: &mut Generation,
    config: &[u8],
) -> Result<Result<(), Error>, Trap> {
    match generation.instance.reconfigure(config) {
        Ok(()) => Ok(Ok(())),
        Err(StartError::Refused(reason)) => Ok(Err(Error::Config {
            module: name.to_owned(),
            reason,
        })),
        Err(StartError::Trap(trap)) => Err(trap),
    }
}

/// The reason why a generation could not start.
pub(super) enum StartFailure {
    Module(StartError),
    /// The machine prevents the host from doing its work.
    Host(Error),
}

impl StartFailure {
    /// Returns the failure as an error of this server.
    pub(super) fn error(self, module: &str) -> Error {
        let module = module.to_owned();
        match self {
            StartFailure::Module(StartError::Refused(reason)) => Error::Config { module, reason },
            StartFailure::Module(StartError::Trap(trap)) => Error::Trap {
                module,
                reason: trap.reason,
            },
            StartFailure::Host(error) => error,
        }
    }
}
