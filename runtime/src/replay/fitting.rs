//! Fitting replays, for other versions of a module than the recorded one. `Recording::replay` runs
//! them.

use std::sync::{Arc, Mutex, MutexGuard};

use super::run::{MAX_TRAPS, Stage, keep_log};
use super::world::World;
use crate::{Difference, Error, LogRecord, Module, Report};
use watm_component::recording::{Call, End, Event, Frame, Function, Header, Reader};
use watm_component::wit::types::ErrorCode;
use watm_component::{Player, Stop, Trap};

/// The most calls of `process` in a row for data that a module has not taken yet.
const MAX_REPEATS: usize = 64;

/// Calls the module as recorded, and gives it the recorded data as it asks for it.
pub(super) fn replay(reader: Reader, header: &Header, module: &Module) -> Result<Report, Error> {
    let host = Arc::new(Mutex::new(Host::new(reader, header)));
    let mut stage = Stage::new(module, header, host.clone())?;
    loop {
        let mut hosting = lock(&host);
        let Some(part) = hosting.next_part()? else {
            break;
        };
        let call = hosting.begin(part);
        drop(hosting);
        let result = match &call {
            None => stage.instantiate(),
            Some(call) => stage.call(call),
        };
        let trapped = result.is_err();
        lock(&host).settle(result);
        let process = matches!(call.as_deref(), Some(Call::Process { .. }));
        if process && !trapped {
            drain(&host, &mut stage);
        }
    }
    let mut hosting = lock(&host);
    let log = std::mem::take(&mut hosting.log);
    let report = Report {
        difference: hosting.difference.take(),
        end: hosting.end.clone().into(),
        events: hosting.events,
        traps: std::mem::take(&mut hosting.traps),
        ..Report::default()
    };
    drop(hosting);
    Ok(stage.finish(report, log))
}

/// Repeats the call while there is data that the module has not taken, and it takes some.
fn drain(host: &Mutex<Host>, stage: &mut Stage) {
    for _ in 0..MAX_REPEATS {
        let mut hosting = lock(host);
        let before = hosting.world.waiting();
        let ready = hosting.world.waiting_tokens();
        if ready.is_empty() {
            return;
        }
        let call = hosting.repeat(ready);
        drop(hosting);
        let result = stage.call(&call);
        let trapped = result.is_err();
        lock(host).settle(result);
        if trapped || lock(host).world.waiting() >= before {
            return;
        }
    }
}

fn lock(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().expect("no panic under this lock")
}

/// A part of the recording: from one call, or instantiation, to the next.
struct Part {
    /// The call; `None` for an instantiation.
    call: Option<Arc<Call<'static>>>,
    imports: Vec<Import>,
    ending: Ending,
    event: u64,
}

struct Import {
    function: Function,
    /// The arguments and the outcome.
    rest: Vec<u8>,
    event: u64,
}

enum Ending {
    Answer(Vec<u8>),
    Trapped {
        interrupted: bool,
        reason: String,
    },
    /// An instance was made, or the recording was truncated.
    Nothing,
}

struct Host {
    reader: Reader,
    /// The frame that was read last, and is not part of anything yet.
    next: Option<Frame>,
    part: Part,
    /// The number of imports of the part that the world has learnt: those that the module has made,
    /// in order, or all, once it makes another.
    learnt: usize,
    world: World,
    now: u64,
    calls: u64,
    events: u64,
    log: Vec<LogRecord>,
    traps: Vec<String>,
    difference: Option<Difference>,
    end: Option<End>,
}

impl Host {
    fn new(reader: Reader, header: &Header) -> Host {
        Host {
            reader,
            next: None,
            part: Part {
                call: None,
                imports: Vec::new(),
                ending: Ending::Nothing,
                event: 0,
            },
            learnt: 0,
            world: World::new(header.began),
            now: 0,
            calls: 0,
            events: 0,
            log: Vec::new(),
            traps: Vec::new(),
            difference: None,
            end: None,
        }
    }

    fn frame(&mut self) -> Result<Option<Frame>, Error> {
        if let Some(frame) = self.next.take() {
            return Ok(Some(frame));
        }
        if self.end.is_some() {
            return Ok(None);
        }
        match self.reader.next_frame()? {
            Ok(frame) => {
                self.events = frame.number;
                Ok(Some(frame))
            }
            Err(end) => {
                self.end = Some(end);
                Ok(None)
            }
        }
    }

    fn next_part(&mut self) -> Result<Option<Part>, Error> {
        let Some(frame) = self.frame()? else {
            return Ok(None);
        };
        let call = match frame.event {
            Event::Instance => None,
            Event::Call(call) => Some(Arc::new(call)),
            _ => return Err(self.reader.damaged("an event out of place")),
        };
        let mut part = Part {
            call,
            imports: Vec::new(),
            ending: Ending::Nothing,
            event: frame.number,
        };
        while let Some(frame) = self.frame()? {
            match frame.event {
                Event::Import(function) => part.imports.push(Import {
                    function,
                    rest: frame.rest,
                    event: frame.number,
                }),
                Event::Returned => {
                    part.ending = Ending::Answer(frame.rest);
                    break;
                }
                Event::Trapped {
                    interrupted,
                    reason,
                } => {
                    part.ending = Ending::Trapped {
                        interrupted,
                        reason: reason.into_owned(),
                    };
                    break;
                }
                _ => {
                    self.next = Some(frame);
                    break;
                }
            }
        }
        Ok(Some(part))
    }

    /// Begins a part. Returns the call to make, if it is one.
    fn begin(&mut self, part: Part) -> Option<Arc<Call<'static>>> {
        if part.call.is_none() {
            self.world.renew();
        }
        self.part = part;
        self.learnt = 0;
        let call = self.part.call.clone()?;
        self.calls += 1;
        self.now = call.now().unwrap_or(self.now);
        Some(match &*call {
            Call::Process { now, ready } => Arc::new(Call::Process {
                now: *now,
                ready: self.world.tokens(ready).into(),
            }),
            Call::Dial {
                now,
                destination,
                application,
            } => Arc::new(Call::Dial {
                now: *now,
                destination: destination.clone(),
                application: self.world.dial(*application, self.part.dialled()),
            }),
            Call::DialDatagrams {
                now,
                destination,
                application,
            } => Arc::new(Call::DialDatagrams {
                now: *now,
                destination: destination.clone(),
                application: self.world.dial(*application, self.part.dialled()),
            }),
            _ => call,
        })
    }

    /// Returns a call that was not recorded.
    fn repeat(&mut self, ready: Vec<u64>) -> Call<'static> {
        self.part.imports.clear();
        self.part.ending = Ending::Nothing;
        self.learnt = 0;
        Call::Process {
            now: self.now,
            ready: ready.into(),
        }
    }

    fn differs(&mut self, event: u64, expected: String, got: String) {
        let call = self.part.call.as_ref();
        let during = call.map_or("instantiation", |call| call.name());
        self.difference.get_or_insert(Difference {
            event,
            call: self.calls,
            during,
            expected,
            got,
        });
    }

    fn ending(&self) -> String {
        match (&self.part.ending, &self.part.call) {
            (Ending::Answer(answer), Some(call)) => {
                format!("the answer {}", call.describe_answer(answer))
            }
            (Ending::Trapped { reason, .. }, _) => format!("a trap ({reason})"),
            _ => "no more".to_owned(),
        }
    }

    /// Returns true if it is unknown what comes after the imports: the call was not recorded, was
    /// truncated with the recording, or was interrupted.
    fn is_open(&self) -> bool {
        match self.part.ending {
            Ending::Answer(_) => false,
            Ending::Trapped { interrupted, .. } => interrupted,
            Ending::Nothing => self.part.call.is_some() || self.end.is_some(),
        }
    }

    /// Handles a module that does something else than the next import, described by `got`. The
    /// world learns all that the host told in this part.
    fn leaves(&mut self, got: impl FnOnce() -> String) {
        if let Some(import) = self.part.imports.get(self.learnt) {
            let (event, expected) = (import.event, import.function.describe_call(&import.rest));
            self.differs(event, expected, got());
        }
        for import in &self.part.imports[self.learnt..] {
            self.world.learn(import.function, &import.rest);
        }
        self.learnt = self.part.imports.len();
    }

    fn settle(&mut self, result: Result<(), Trap>) {
        self.leaves(|| "no more".to_owned());
        let recorded = match &self.part.ending {
            Ending::Trapped {
                interrupted,
                reason,
            } => Some((*interrupted, reason.clone())),
            _ => None,
        };
        let event = self.part.event;
        match (result, recorded) {
            (Ok(()), None) | (Ok(()), Some((true, _))) => {}
            (Ok(()), Some((false, _))) => {
                let expected = self.ending();
                self.differs(event, expected, "no trap".to_owned());
            }
            (Err(trap), recorded) => {
                let same = recorded
                    .is_some_and(|(interrupted, reason)| interrupted || reason == trap.reason);
                // It is unknown how a truncated recording would continue.
                if !same && !self.is_open() {
                    let expected = self.ending();
                    self.differs(event, expected, format!("a trap ({})", trap.reason));
                }
                if self.traps.len() < MAX_TRAPS {
                    self.traps.push(trap.reason);
                }
            }
        }
    }
}

impl Part {
    /// Returns the token that answered a call of `dial` or `dial-datagrams`.
    fn dialled(&self) -> Option<u64> {
        match &self.ending {
            Ending::Answer(answer) => dialled_token(answer),
            _ => None,
        }
    }
}

/// Returns the token that `dial` answered, if it did.
fn dialled_token(answer: &[u8]) -> Option<u64> {
    postcard::from_bytes::<Result<u64, ErrorCode>>(answer)
        .ok()?
        .ok()
}

impl Player for Host {
    fn now(&self) -> u64 {
        self.now
    }

    fn import(&mut self, function: Function, arguments: &[u8]) -> Result<Vec<u8>, Stop> {
        keep_log(&mut self.log, function, arguments);
        let recorded = self.part.imports.get(self.learnt);
        let outcome = recorded
            .filter(|import| import.function == function)
            .and_then(|import| import.rest.strip_prefix(arguments))
            .map(<[u8]>::to_vec);
        if let (Some(outcome), Some(import)) = (outcome, recorded) {
            self.world.learn(function, &import.rest);
            self.learnt += 1;
            // This keeps the world as it is in the recording.
            self.world.answer(function, arguments);
            return Ok(outcome);
        }
        let got = || function.describe_call(arguments);
        if recorded.is_none() && !self.is_open() {
            let expected = self.ending();
            self.differs(self.part.event, expected, got());
        }
        self.leaves(got);
        self.world.answer(function, arguments).ok_or(Stop)
    }

    fn returned(&mut self, answer: Vec<u8>) {
        let Some(call) = self.part.call.clone() else {
            return;
        };
        let got = || format!("the answer {}", call.describe_answer(&answer));
        self.leaves(got);
        if matches!(*call, Call::Dial { .. } | Call::DialDatagrams { .. })
            && let Some(token) = dialled_token(&answer)
        {
            self.world.dialled(token);
        }
        if matches!(&self.part.ending, Ending::Answer(recorded) if *recorded != answer) {
            let expected = self.ending();
            self.differs(self.part.event, expected, got());
        }
    }

    fn interrupts(&self) -> bool {
        false
    }
}
