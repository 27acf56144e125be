//! Swaps: one module replaces another while traffic flows. Used by `run`.
//!
//! The new module starts with the old one's snapshot, on a thread of its own, so that the old one
//! serves meanwhile. Then the new one serves, and the old one finishes its flows. During the
//! probation the old one is kept in any case, and serves again if the new one fails.
//!
//! WATER modules are swapped in `water`: their instances have one connection each, so that nothing is
//! handed over and no generations run beside each other. Both ways end with the same [`Rollback`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Reply;
use super::generation::{Generation, Retired};
use super::restart::start;
use super::run::{Driver, StartFailure};
use crate::{Error, Keys, Module, Phase, SwapOptions};
use watm_component::{Grants, Tape};
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::{Rollback, remember};

/// The interval between checks if a state has been written, which takes some milliseconds.
const REMEMBERING: Duration = Duration::from_millis(5);

/// The usual time of a start, during which the driver does nothing else. If a start takes longer, the
/// old module serves on, and its successor does not learn what it does from then on.
const USUAL_START: Duration = Duration::from_millis(50);

/// A request for a swap.
pub(crate) struct Swap {
    pub(crate) module: Module,
    pub(crate) options: SwapOptions,
    /// True if the swap requires that the module's acceptance is written to the state.
    pub(crate) remember: bool,
}

/// The writing of a module's acceptance, which runs on a thread of its own.
type Remembering = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A module that served well, and its configuration.
pub(super) struct Predecessor {
    pub(super) module: Module,
    pub(super) config: Vec<u8>,
    pub(super) cpu_quota: CpuQuota,
    pub(super) keys: Keys,
}

/// The probation of a module that was swapped in.
pub(super) struct Probation {
    until: Instant,
    /// The generation that served before.
    generation: u32,
    before: Predecessor,
    reply: Reply<u32>,
    /// True if the module's acceptance must be written to the state at the end.
    remember: bool,
    /// The write to the state, once it has begun.
    remembering: Option<Remembering>,
}

impl Probation {
    /// Returns the end of the probation.
    pub(super) fn due(&self) -> Instant {
        self.until
    }
}

/// A module that starts on a thread of its own. The serving one continues, however long the start
/// takes.
pub(super) struct Candidate {
    /// The number of the serving generation.
    beside: u32,
    /// The candidate's own number.
    number: u32,
    module: Module,
    config: Vec<u8>,
    grants: Grants,
    /// The snapshot of the serving generation, which it starts with.
    snapshot: Arc<[u8]>,
    options: SwapOptions,
    remember: bool,
    reply: Reply<u32>,
    starting: Starting,
}

/// The result of a candidate's thread: its generation, or the reason why there is none.
pub(super) type Started = Result<Generation, StartFailure>;

/// The thread of a candidate. Dropping this waits until the thread has ended, so that it holds no
/// socket any more.
struct Starting {
    thread: Option<JoinHandle<()>>,
    started: oneshot::Receiver<Started>,
}

impl Starting {
    /// Starts `module` as generation `number`.
    fn new(
        number: u32,
        module: &Module,
        config: &[u8],
        grants: &Grants,
        snapshot: Arc<[u8]>,
    ) -> io::Result<Starting> {
        let (sender, started) = oneshot::channel();
        let (module, config, grants) = (module.clone(), config.to_vec(), grants.clone());
        // Timers and connections belong to the executor of the server's thread.
        let executor = Handle::current();
        let thread = thread::Builder::new()
            .name("watm-start".to_owned())
            .spawn(move || {
                let _context = executor.enter();
                let new = start(&module, &config, &grants, number, Some(&snapshot));
                // The driver may have ended.
                drop(sender.send(new));
            })?;
        Ok(Starting {
            thread: Some(thread),
            started,
        })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread has reported a panic.
            let _ = thread.join();
        }
    }
}

impl Candidate {
    /// Returns ready when the candidate has started, or failed to.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Started> {
        let started = Pin::new(&mut self.starting.started).poll(cx);
        started.map(|started| {
            started.unwrap_or_else(|_| {
                let reason = "the thread that started the module ended".to_owned();
                Err(StartFailure::Host(Error::System(reason)))
            })
        })
    }
}

impl Driver {
    /// Begins a swap. The answer comes when the new module has passed its probation.
    pub(super) fn swap(&mut self, swap: Swap, reply: Reply<u32>) {
        match self.prepare(&swap) {
            Ok((beside, snapshot)) => self.start_candidate(swap, beside, snapshot, reply),
            Err(error) => reply(Err(error)),
        }
    }

    /// Checks that the swap can be tried. Returns the generation that serves, and its snapshot.
    fn prepare(&mut self, swap: &Swap) -> Result<(u32, Arc<[u8]>), Error> {
        let Swap {
            module, options, ..
        } = swap;
        let name = self.name().to_owned();
        let refuse = |reason: String| Error::Swap {
            module: module.name().to_owned(),
            reason,
        };
        if self.probation.is_some() || self.candidate.is_some() {
            return Err(Error::Busy { module: name });
        }
        if !module.is_component() {
            return Err(refuse(format!(
                "is a {} and cannot replace a component; start another server",
                module.info().kind
            )));
        }
        for (label, port) in self.grants.ports.iter() {
            module.check_use(&name, label, port.protocol())?;
        }
        let most = self.grants.hub.limits.generations;
        if !self.make_room(most) {
            return Err(refuse(format!(
                "{most} generations of the module, the limit (limits.generations), still have \
                 open flows; wait until they finish, or set a drain deadline"
            )));
        }
        module.check_keys(&name, options.keys.as_ref().unwrap_or(&self.grants.keys))?;
        let Some(old) = self.serving() else {
            return Err(Error::Restarting { module: name });
        };
        let number = old.number;
        match old.instance.snapshot() {
            Ok(snapshot) => Ok((number, snapshot.into())),
            Err(trap) => {
                let reason = trap.reason.clone();
                self.failed(number, trap);
                Err(Error::Trap {
                    module: name,
                    reason,
                })
            }
        }
    }

    fn start_candidate(&mut self, swap: Swap, beside: u32, snapshot: Arc<[u8]>, reply: Reply<u32>) {
        let Swap {
            module,
            options,
            remember,
        } = swap;
        let config = options.config.clone();
        let config = config.unwrap_or_else(|| self.config.clone());
        let keys = options.keys.clone();
        let grants = Grants {
            cpu_quota: CpuQuota::new(module.granted().cpu_permille()),
            keys: keys.unwrap_or_else(|| self.grants.keys.clone()),
            tape: None,
            ..self.grants.clone()
        };
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        match Starting::new(number, &module, &config, &grants, snapshot.clone()) {
            Ok(starting) => {
                self.candidate = Some(Candidate {
                    beside,
                    number,
                    module,
                    config,
                    grants,
                    snapshot,
                    options,
                    remember,
                    reply,
                    starting,
                });
            }
            Err(error) => reply(Err(Error::System(format!(
                "cannot start a thread: {error}"
            )))),
        }
    }

    /// Gives a candidate the time that a module usually takes to start. Other events wait, so that
    /// the new module begins with all that the old one knows.
    pub(super) async fn wait_for_candidate(&mut self) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        let started = timeout(USUAL_START, poll_fn(|cx| candidate.poll(cx))).await;
        if let Ok(started) = started {
            self.candidate_started(started);
        }
    }

    /// Makes the candidate serve, on probation, unless it did not start or the generation that it
    /// should replace no longer serves.
    pub(super) fn candidate_started(&mut self, started: Started) {
        let Some(candidate) = self.candidate.take() else {
            return;
        };
        let new = match started {
            Ok(new) => new,
            Err(failure) => {
                self.grants.mailboxes.end(candidate.number);
                return (candidate.reply)(Err(failure.error(candidate.module.name())));
            }
        };
        if self
            .serving()
            .is_none_or(|old| old.number != candidate.beside)
        {
            self.end(new);
            let module = self.name().to_owned();
            return (candidate.reply)(Err(Error::Restarting { module }));
        }
        let probation = candidate.options.probation;
        self.replace(candidate, new);
        self.announce();
        if probation.is_zero() {
            self.tend_swap(Instant::now());
        }
        self.set_alarm();
    }

    fn replace(&mut self, candidate: Candidate, new: Generation) {
        if let Some(Tape::Record(recorder)) = self.grants.tape.take() {
            recorder.end("the module was replaced");
        }
        let now = Instant::now();
        let options = candidate.options;
        if let Some(old) = self.serving() {
            old.retired = Some(Retired {
                since: now,
                deadline: options.drain.map(|drain| now + drain),
                finished: false,
            });
        }
        self.grants.mailboxes.serve(new.number);
        self.generations.push(new);
        self.inherited = Some(candidate.snapshot.to_vec());
        let grants = candidate.grants;
        let before = Predecessor {
            module: std::mem::replace(&mut self.module, candidate.module),
            config: std::mem::replace(&mut self.config, candidate.config),
            cpu_quota: std::mem::replace(&mut self.grants.cpu_quota, grants.cpu_quota),
            keys: std::mem::replace(&mut self.grants.keys, grants.keys),
        };
        self.probation = Some(Probation {
            until: now + options.probation,
            generation: candidate.beside,
            before,
            reply: candidate.reply,
            remember: candidate.remember,
            remembering: None,
        });
    }

    /// Makes sure that there are fewer than `most` generations, if need be by ending those without
    /// open flows early: they wait for late packets. Returns false if all have flows.
    fn make_room(&mut self, most: usize) -> bool {
        while self.generations.len() >= most {
            let idle = self.generations.iter_mut().position(|generation| {
                let said = generation
                    .retired
                    .is_some()
                    .then(|| generation.instance.status());
                matches!(said, Some(Ok(said)) if said.flows == 0)
            });
            let Some(index) = idle else {
                return false;
            };
            let generation = self.generations.remove(index);
            self.end(generation);
        }
        true
    }

    /// Tells all generations which one serves: the new one first, so that the others can turn to it.
    pub(super) fn announce(&mut self) {
        let serving = self.grants.mailboxes.serving();
        let mut numbers: Vec<u32> = self.generations.iter().map(|g| g.number).collect();
        numbers.sort_by_key(|&number| number != serving);
        for number in numbers {
            let Some(generation) = self.generations.iter_mut().find(|g| g.number == number) else {
                continue;
            };
            let told = generation.instance.serving(serving);
            generation.changed();
            if let Err(trap) = told {
                self.failed(number, trap);
                if number == serving {
                    // The failure has told the others which one serves instead.
                    return;
                }
            }
        }
    }

    /// Rolls back a module whose acceptance could not be written. Resets what it has opened meanwhile.
    fn forget(&mut self, error: Error) {
        let serving = self.grants.mailboxes.serving();
        if let Some(index) = self.generations.iter().position(|g| g.number == serving) {
            let generation = self.generations.remove(index);
            self.end(generation);
        }
        self.roll_back(Rollback::NotSaved(error));
    }

    /// Returns the result of writing the module's acceptance; `None` while it is still being written.
    fn remembered(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let probation = self.probation.as_mut()?;
        if !probation.remember {
            return Some(Ok(()));
        }
        let module = &self.module;
        let remembering = probation
            .remembering
            .get_or_insert_with(|| Box::pin(remember(module.clone())));
        let mut cx = Context::from_waker(Waker::noop());
        match remembering.as_mut().poll(&mut cx) {
            Poll::Ready(remembered) => Some(remembered),
            Poll::Pending => {
                probation.until = now + REMEMBERING;
                None
            }
        }
    }

    /// Makes the former module serve again.
    pub(super) fn roll_back(&mut self, reason: Rollback) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        let failed = std::mem::replace(&mut self.module, probation.before.module);
        self.config = probation.before.config;
        self.grants.cpu_quota = probation.before.cpu_quota;
        self.grants.keys = probation.before.keys;
        let number = probation.generation;
        let old = self.generations.iter_mut().find(|g| g.number == number);
        match old {
            Some(old) => {
                old.retired = None;
                self.grants.mailboxes.serve(number);
                reason.log(self.name(), &failed, &self.module);
                self.announce();
            }
            // The old one failed too.
            None => self.begin_rest(Phase::Restarting),
        }
        (probation.reply)(Err(reason.into_error(&failed)));
    }

    /// Ends a probation that is over, and generations whose time to drain is.
    pub(super) fn tend_swap(&mut self, now: Instant) {
        let is_over = self.probation.as_ref().is_some_and(|p| p.until <= now);
        let remembered = is_over.then(|| self.remembered(now)).flatten();
        if let Some(Err(error)) = remembered {
            self.forget(error);
        } else if let Some(Ok(())) = remembered
            && let Some(probation) = self.probation.take()
        {
            let number = self.grants.mailboxes.serving();
            tracing::info!(
                target: "watm::server",
                server = self.name(),
                "swapped in the module {}, replacing {}, as generation {number}",
                self.module.name(),
                probation.before.module.name()
            );
            self.grants.hub.continue_usage_record(&self.module);
            self.fallback = Some(probation.before);
            self.failures = 0;
            (probation.reply)(Ok(number));
            self.sweep();
        }
        let late = |generation: &Generation| {
            let retired = generation.retired.as_ref();
            retired.is_some_and(|retired| retired.deadline.is_some_and(|end| end <= now))
        };
        let kept = self.probation.as_ref().map(|p| p.generation);
        while let Some(index) = self
            .generations
            .iter()
            .position(|generation| late(generation) && Some(generation.number) != kept)
        {
            let generation = self.generations.remove(index);
            tracing::warn!(
                target: "watm::server",
                server = self.name(),
                "generation {} did not drain before its deadline; its flows are reset",
                generation.number
            );
            self.end(generation);
        }
    }

    /// Drops the generations that have nothing left to do, except the one that a rollback would need.
    pub(super) fn sweep(&mut self) {
        let kept = self.probation.as_ref().map(|p| p.generation);
        while let Some(index) = self.generations.iter().position(|generation| {
            let retired = generation.retired.as_ref();
            retired.is_some_and(|retired| retired.finished) && Some(generation.number) != kept
        }) {
            let generation = self.generations.remove(index);
            self.end(generation);
        }
        self.set_alarm();
    }
}
