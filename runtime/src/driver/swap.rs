//! One module takes the place of another while traffic flows.
//!
//! The new one starts with the old one's snapshot, and serves from then on; the old one
//! finishes its flows. For its first second the old one is kept whatever it says, and serves
//! again if the new one fails.

use std::sync::mpsc as blocking;
use std::thread;
use std::time::{Duration, Instant};

use super::Reply;
use super::generation::{Generation, Retired};
use super::restart::start;
use super::run::Driver;
use crate::component::{Grants, Tape};
use crate::server::check_use;
use crate::share::Share;
use crate::{Error, Keys, Module, Phase, SwapOptions};

/// Between two looks whether a state has been written, which takes some milliseconds.
const REMEMBERING: Duration = Duration::from_millis(5);

/// What is asked for.
pub(crate) struct Swap {
    pub(crate) module: Module,
    pub(crate) options: SwapOptions,
    /// Whether it is remembered that the module has served, or else it does not.
    pub(crate) remember: bool,
}

/// A module and its configuration, which did well.
pub(super) struct Predecessor {
    pub(super) module: Module,
    pub(super) config: Vec<u8>,
    pub(super) share: Share,
    pub(super) keys: Keys,
}

/// The first second of a module that was swapped in.
pub(super) struct Probation {
    until: Instant,
    /// The generation that served before.
    generation: u32,
    before: Predecessor,
    reply: Reply<u32>,
    /// Whether what follows from the new module is to be remembered when it is over.
    remember: bool,
    /// It is being; on a thread of its own, since a disk takes its time.
    remembering: Option<blocking::Receiver<Result<(), Error>>>,
}

impl Probation {
    /// When it is over.
    pub(super) fn due(&self) -> Instant {
        self.until
    }
}

impl Driver {
    /// Begin a swap; the answer comes when the new module has passed its probation.
    pub(super) fn swap(&mut self, swap: Swap, reply: Reply<u32>) {
        let remember = swap.remember;
        match self.replace(swap) {
            Ok((probation, before)) => {
                self.probation = Some(Probation {
                    until: Instant::now() + probation,
                    generation: before.0,
                    before: before.1,
                    reply,
                    remember,
                    remembering: None,
                });
                self.announce();
                if probation.is_zero() {
                    self.tend_swap(Instant::now());
                }
            }
            Err(error) => reply(Err(error)),
        }
    }

    fn replace(&mut self, swap: Swap) -> Result<(Duration, (u32, Predecessor)), Error> {
        let Swap {
            module, options, ..
        } = swap;
        let name = self.name().to_owned();
        let refuse = |reason: String| Error::Swap {
            module: module.name().to_owned(),
            reason,
        };
        if self.probation.is_some() {
            return Err(Error::Busy { module: name });
        }
        if module.component().is_none() {
            return Err(refuse(format!(
                "a {}, which cannot take the place of a component; start another server",
                module.info().kind
            )));
        }
        for (label, port) in self.grants.ports.iter() {
            check_use(&module, &name, label, port.protocol())?;
        }
        let most = self.grants.hub.limits.generations;
        if !self.make_room(most) {
            return Err(refuse(format!(
                "{most} generations of the module have open flows; wait, or give them a drain \
                 deadline (limits.generations)"
            )));
        }
        let keys = options.keys.unwrap_or_else(|| self.grants.keys.clone());
        module.check_keys(&name, &keys)?;
        let Some(old) = self.serving() else {
            return Err(Error::Restarting { module: name });
        };
        let old_number = old.number;
        let snapshot = match old.instance.snapshot() {
            Ok(snapshot) => snapshot,
            Err(trap) => {
                let reason = trap.reason.clone();
                self.failed(old_number, trap);
                return Err(Error::Trap {
                    module: name,
                    reason,
                });
            }
        };
        let config = options.config.unwrap_or_else(|| self.config.clone());
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let grants = Grants {
            share: Share::new(module.granted().cpu_permille()),
            keys,
            tape: None,
            ..self.grants.clone()
        };
        let new = match start(&module, &config, &grants, number, Some(&snapshot)) {
            Ok(new) => new,
            Err(failure) => {
                self.grants.post.end(number);
                return Err(failure.error(module.name()));
            }
        };
        if let Some(Tape::Record(recorder)) = self.grants.tape.take() {
            recorder.end("another module serves");
        }
        let now = Instant::now();
        if let Some(old) = self.serving() {
            old.retired = Some(Retired {
                since: now,
                deadline: options.drain.map(|drain| now + drain),
                finished: false,
            });
        }
        self.grants.post.serve(number);
        self.generations.push(new);
        self.inherited = Some(snapshot);
        let before = Predecessor {
            module: std::mem::replace(&mut self.module, module),
            config: std::mem::replace(&mut self.config, config),
            share: std::mem::replace(&mut self.grants.share, grants.share),
            keys: std::mem::replace(&mut self.grants.keys, grants.keys),
        };
        Ok((options.probation, (old_number, before)))
    }

    /// Have fewer than `most` generations, if need be by ending those without open flows before
    /// they are quite finished: they wait for late packets. `false`: all have flows.
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

    /// Tell all who serves: the new one first, so that the others have somebody to turn to.
    pub(super) fn announce(&mut self) {
        let serving = self.grants.post.serving();
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
                    // The others have been told of who serves instead.
                    return;
                }
            }
        }
    }

    /// The module that serves failed in its first second.
    pub(super) fn roll_back(&mut self, reason: &str) {
        self.take_back("failed at once", |failed| Error::Swap {
            module: failed.name().to_owned(),
            reason: format!("failed at once, and was taken back: {reason}"),
        });
    }

    /// It cannot be remembered that the module serves, which somebody could use to bring back an
    /// older one. What it has opened meanwhile is reset.
    fn forget(&mut self, error: Error) {
        let serving = self.grants.post.serving();
        if let Some(index) = self.generations.iter().position(|g| g.number == serving) {
            let generation = self.generations.remove(index);
            self.end(generation);
        }
        self.take_back("cannot be remembered", |_| error);
    }

    /// Whether it has been remembered that the new module serves; `None`: not yet.
    fn remembered(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let probation = self.probation.as_mut()?;
        if !probation.remember || self.module.is_remembered() {
            return Some(Ok(()));
        }
        let failed = |reason: String| Some(Err(Error::System(reason)));
        let answer = match &probation.remembering {
            Some(answer) => answer,
            None => {
                let (sender, answer) = blocking::sync_channel(1);
                let module = self.module.clone();
                let spawned = thread::Builder::new()
                    .name("watm-state".to_owned())
                    // The driver may have ended.
                    .spawn(move || drop(sender.send(module.accept())));
                if let Err(error) = spawned {
                    return failed(format!("cannot start a thread: {error}"));
                }
                probation.remembering.insert(answer)
            }
        };
        match answer.try_recv() {
            Ok(remembered) => Some(remembered),
            Err(blocking::TryRecvError::Empty) => {
                probation.until = now + REMEMBERING;
                None
            }
            Err(blocking::TryRecvError::Disconnected) => {
                failed("a thread that writes the state ended".to_owned())
            }
        }
    }

    fn take_back(&mut self, said: &str, error: impl FnOnce(&Module) -> Error) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        let failed = std::mem::replace(&mut self.module, probation.before.module);
        self.config = probation.before.config;
        self.grants.share = probation.before.share;
        self.grants.keys = probation.before.keys;
        let number = probation.generation;
        let old = self.generations.iter_mut().find(|g| g.number == number);
        match old {
            Some(old) => {
                old.retired = None;
                self.grants.post.serve(number);
                tracing::error!(
                    target: "watm::server",
                    server = self.name(),
                    "the module {} {said}; {} serves again",
                    failed.name(),
                    self.module.name()
                );
                self.announce();
            }
            // It failed too.
            None => self.begin_rest(Phase::Restarting),
        }
        (probation.reply)(Err(error(&failed)));
    }

    /// End a probation that is over, and generations whose time is.
    pub(super) fn tend_swap(&mut self, now: Instant) {
        let is_over = self.probation.as_ref().is_some_and(|p| p.until <= now);
        let remembered = is_over.then(|| self.remembered(now)).flatten();
        if let Some(Err(error)) = remembered {
            self.forget(error);
        } else if let Some(Ok(())) = remembered
            && let Some(probation) = self.probation.take()
        {
            let number = self.grants.post.serving();
            tracing::info!(
                target: "watm::server",
                server = self.name(),
                "the module {} serves in the place of {}, as generation {number}",
                self.module.name(),
                probation.before.module.name()
            );
            self.grants.hub.keep_for(&self.module);
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
                "generation {} did not finish in the time it was given; its flows are reset",
                generation.number
            );
            self.end(generation);
        }
    }

    /// Drop the generations that have nothing left to do, but for one that may have to serve
    /// again.
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
