//! Exact replays, which end at the first difference. `Recording::replay` runs them.

use std::sync::{Arc, Mutex, MutexGuard};

use super::run::{MAX_TRAPS, Stage, keep_log};
use crate::{Difference, Error, LogRecord, Module, Report};
use watm_component::recording::{Call, End, Event, Frame, Function, Header, Reader};
use watm_component::{Player, Stop, Trap};

/// Calls the module as recorded, until there is a difference.
pub(super) fn replay(reader: Reader, header: &Header, module: &Module) -> Result<Report, Error> {
    let follower = Arc::new(Mutex::new(Follower::new(reader)));
    let mut stage = Stage::new(module, header, follower.clone())?;
    loop {
        let mut following = lock(&follower);
        let Some(frame) = following.take() else { break };
        match frame.event {
            Event::Instance => {
                following.call = None;
                drop(following);
                let made = stage.instantiate();
                lock(&follower).settle(made);
            }
            Event::Call(call) if stage.instance.is_some() => {
                let call = Arc::new(call);
                following.call = Some(call.clone());
                following.calls += 1;
                drop(following);
                let result = stage.call(&call);
                lock(&follower).settle(result);
            }
            _ => following.misplaced(),
        }
    }
    let mut following = lock(&follower);
    if let Some(error) = following.error.take() {
        return Err(error);
    }
    let log = std::mem::take(&mut following.log);
    let report = Report {
        difference: following.difference.take(),
        end: following.end.clone().into(),
        events: following.events,
        traps: std::mem::take(&mut following.traps),
        ..Report::default()
    };
    // The lock is released: the request for the module's counters was not recorded.
    drop(following);
    Ok(stage.finish(report, log))
}

fn lock(follower: &Mutex<Follower>) -> MutexGuard<'_, Follower> {
    follower.lock().expect("no panic under this lock")
}

/// Compares what the module does with the recording.
struct Follower {
    reader: Reader,
    /// The frame that was read last, and not reached yet.
    next: Option<Frame>,
    call: Option<Arc<Call<'static>>>,
    calls: u64,
    events: u64,
    log: Vec<LogRecord>,
    traps: Vec<String>,
    // Any of these ends the replay.
    difference: Option<Difference>,
    end: Option<End>,
    error: Option<Error>,
}

impl Follower {
    fn new(reader: Reader) -> Follower {
        let mut follower = Follower {
            reader,
            next: None,
            call: None,
            calls: 0,
            events: 0,
            log: Vec::new(),
            traps: Vec::new(),
            difference: None,
            end: None,
            error: None,
        };
        follower.advance();
        follower
    }

    fn advance(&mut self) {
        match self.reader.next_frame() {
            Ok(Ok(frame)) => self.next = Some(frame),
            Ok(Err(end)) => self.end = Some(end),
            Err(error) => self.error = Some(error),
        }
    }

    /// Takes the next event, if there is one to replay.
    fn take(&mut self) -> Option<Frame> {
        if self.difference.is_some() {
            return None;
        }
        let frame = self.next.take()?;
        self.events = frame.number;
        if let Event::Trapped { reason, .. } = &frame.event
            && self.traps.len() < MAX_TRAPS
        {
            self.traps.push(reason.to_string());
        }
        self.advance();
        Some(frame)
    }

    /// Notes that the last event is one that no host writes in that place.
    fn misplaced(&mut self) {
        let error = self.reader.damaged("an event out of place");
        self.error.get_or_insert(error);
        self.next = None;
    }

    fn during(&self) -> &'static str {
        self.call
            .as_ref()
            .map_or("instantiation", |call| call.name())
    }

    fn differs(&mut self, event: u64, expected: String, got: String) {
        let during = self.during();
        self.difference.get_or_insert(Difference {
            event,
            call: self.calls,
            during,
            expected,
            got,
        });
    }

    /// Describes what the recording has next, for people.
    fn expected(&self, frame: &Frame) -> String {
        match &frame.event {
            Event::Import(function) => function.describe_call(&frame.rest),
            Event::Returned => match &self.call {
                Some(call) => format!("the answer {}", call.describe_answer(&frame.rest)),
                None => "an answer".to_owned(),
            },
            Event::Trapped { reason, .. } => format!("a trap ({reason})"),
            Event::Instance => "a new instance".to_owned(),
            Event::Call(call) => format!("a call of {}", call.name()),
            Event::End(reason) => format!("the end ({reason})"),
        }
    }

    /// Notes that the module has done something else, described by `got`, in place of the next
    /// event.
    fn not_as_expected(&mut self, got: impl FnOnce(&Follower) -> String) {
        if let Some(frame) = self.next.take() {
            let (expected, got) = (self.expected(&frame), got(self));
            self.differs(frame.number, expected, got);
        }
    }

    /// Handles the end of a call, or of an instantiation.
    fn settle(&mut self, result: Result<(), Trap>) {
        let interrupted = self.interrupts();
        match result {
            // An answer was compared when it came. An instantiation has none.
            Ok(()) if self.call.is_some() || !interrupted => {}
            Ok(()) => drop(self.take()),
            Err(_) if self.difference.is_some() => {}
            Err(trap) => match &self.next {
                Some(Frame {
                    event: Event::Trapped { reason, .. },
                    ..
                }) if interrupted || *reason == trap.reason => drop(self.take()),
                _ => self.not_as_expected(|_| format!("a trap ({})", trap.reason)),
            },
        }
    }
}

impl Player for Follower {
    fn now(&self) -> u64 {
        self.call
            .as_ref()
            .and_then(|call| call.now())
            .unwrap_or_default()
    }

    fn import(&mut self, function: Function, arguments: &[u8]) -> Result<Vec<u8>, Stop> {
        let recorded = match &self.next {
            Some(frame) => {
                matches!(frame.event, Event::Import(known) if known == function)
                    && frame.rest.starts_with(arguments)
            }
            None => return Err(Stop),
        };
        if !recorded {
            // It got further than in the recording before it was interrupted.
            if !self.interrupts() {
                self.not_as_expected(|_| function.describe_call(arguments));
            }
            return Err(Stop);
        }
        keep_log(&mut self.log, function, arguments);
        let mut outcome = self.take().ok_or(Stop)?.rest;
        outcome.drain(..arguments.len());
        Ok(outcome)
    }

    fn returned(&mut self, answer: Vec<u8>) {
        match &self.next {
            Some(Frame {
                event: Event::Returned,
                rest,
                ..
            }) if *rest == answer => drop(self.take()),
            // It was faster than in the recording.
            _ if self.interrupts() => drop(self.take()),
            _ => self.not_as_expected(|following| match &following.call {
                Some(call) => format!("the answer {}", call.describe_answer(&answer)),
                None => "an answer".to_owned(),
            }),
        }
    }

    fn interrupts(&self) -> bool {
        matches!(
            &self.next,
            Some(Frame {
                event: Event::Trapped {
                    interrupted: true,
                    ..
                },
                ..
            })
        )
    }
}
