use std::sync::{Arc, Mutex, MutexGuard};

use super::run::{MAX_TRAPS, Stage, keep_log};
use super::world::World;
use crate::component::wit::types::ErrorCode;
use crate::component::{Player, Stop, Trap};
use crate::recording::{Call, End, Event, Frame, Function, Header, Reader};
use crate::{Difference, Error, LogRecord, Module, Report};

/// Calls of `process` in a row for what a module has not taken yet.
const MAX_REPEATS: usize = 64;

/// Call the module as recorded, and give it what there is for it.
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

/// Call again, while there is something that the module has not taken and takes.
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

/// What the recording has from one call, or from the making of an instance, to the next.
struct Part {
    /// `None`: an instance.
    call: Option<Arc<Call<'static>>>,
    imports: Vec<Import>,
    ending: Ending,
    event: u64,
}

struct Import {
    function: Function,
    /// Arguments and outcome.
    rest: Vec<u8>,
    event: u64,
}

enum Ending {
    Answer(Vec<u8>),
    Trapped {
        interrupted: bool,
        reason: String,
    },
    /// An instance was made; or the recording was cut short.
    Nothing,
}

struct Host {
    reader: Reader,
    /// Read, and not part of anything yet.
    next: Option<Frame>,
    part: Part,
    /// Imports of the part that the world has learnt of: those that the module has made, in
    /// order, or all, once it makes another.
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
        match self.reader.next()? {
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
            _ => return Err(self.reader.damaged("an event that belongs elsewhere")),
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

    /// The call to make, if it is one.
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

    /// A call that was not recorded.
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

    /// Whether it is not known what comes after the imports: the call was not recorded, was
    /// cut short with the recording, or was interrupted.
    fn is_open(&self) -> bool {
        match self.part.ending {
            Ending::Answer(_) => false,
            Ending::Trapped { interrupted, .. } => interrupted,
            Ending::Nothing => self.part.call.is_some() || self.end.is_some(),
        }
    }

    /// The module does something else than the next import, described by `got`. What the
    /// host said in this part, it said.
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
                // It is not known how a recording that is cut short would go on.
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
    /// The token that a call of `dial` or `dial-datagrams` was answered with.
    fn dialled(&self) -> Option<u64> {
        match &self.ending {
            Ending::Answer(answer) => dialled_token(answer),
            _ => None,
        }
    }
}

/// What `dial` answered, if it was a token.
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
            // Keeps the world as it is in the recording.
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
