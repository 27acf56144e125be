//! Log records on their way from any thread to Python's `logging`.
//!
//! A thread that logs must not wait for the interpreter, so records go to a queue that the event
//! loops empty. A full queue drops records and counts them.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake as _;
use std::{iter, mem};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::signals::Signal;

/// The most waiting records: those of a noisy start's first second.
const QUEUE: usize = 1024;
/// The most bytes of a message. Modules write some of the messages.
const MESSAGE: usize = 4096;

/// Python's number of the level, the logger's name below the package's, and the message.
type Record = (u8, String, String);

/// Sends the process's records here, unless something else receives them already.
pub(crate) fn install() {
    // An error means that the embedding program has a subscriber of its own.
    let _ = tracing::subscriber::set_global_default(ToPython);
}

/// Wakes this signal whenever records are waiting.
pub(crate) fn subscribe(signal: &Arc<Signal>) {
    let mut queue = queue();
    queue.loops.retain(|signal| signal.strong_count() > 0);
    queue.loops.push(Arc::downgrade(signal));
    if !queue.records.is_empty() {
        signal.wake_by_ref();
    }
}

/// Drops records below `level`, a number of Python's `logging`, at their origin.
#[pyfunction]
pub fn set_log_level(level: u8) {
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Returns the waiting records, oldest first, as (level, logger, message), and the number dropped
/// since the last call.
#[pyfunction]
pub fn take_logs() -> (Vec<Record>, u64) {
    let mut queue = queue();
    let records = mem::take(&mut queue.records).into();
    (records, mem::take(&mut queue.dropped))
}

static LEVEL: AtomicU8 = AtomicU8::new(30);
static WAITING: Mutex<Queue> = Mutex::new(Queue {
    records: VecDeque::new(),
    dropped: 0,
    loops: Vec::new(),
});

struct Queue {
    records: VecDeque<Record>,
    dropped: u64,
    loops: Vec<Weak<Signal>>,
}

fn queue() -> MutexGuard<'static, Queue> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push(record: Record) {
    let mut queue = queue();
    if queue.records.len() == QUEUE {
        queue.dropped += 1;
        return;
    }
    queue.records.push_back(record);
    if queue.records.len() == 1 {
        queue
            .loops
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|signal| signal.wake_by_ref());
    }
}

/// Returns Python's number of a level. Programs use 5 for TRACE, which Python lacks.
fn number(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct ToPython;

impl ToPython {
    /// Returns true if a record is wanted. Libraries outside the project log from WARN up.
    fn wanted(metadata: &Metadata<'_>) -> bool {
        let least = if metadata.target().starts_with("watm") {
            0
        } else {
            30
        };
        number(metadata.level()) >= LEVEL.load(Ordering::Relaxed).max(least)
    }
}

impl Subscriber for ToPython {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wanted(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0..=9 => LevelFilter::TRACE,
            10..=19 => LevelFilter::DEBUG,
            20..=29 => LevelFilter::INFO,
            30..=39 => LevelFilter::WARN,
            _ => LevelFilter::ERROR,
        })
    }

    // The records contain everything that spans would add.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let target = metadata.target();
        let target = target
            .strip_prefix("watm_")
            .unwrap_or(target)
            .replace("::", ".");
        push((number(metadata.level()), target, text.finish()));
    }
}

/// The text of a record for people: the server that it is about, the message, then other fields as
/// name=value.
#[derive(Default)]
struct Text {
    server: String,
    message: String,
    fields: String,
}

impl Text {
    fn finish(self) -> String {
        let mut text = match self.server.is_empty() {
            true => self.message,
            false => format!("{}: {}", self.server, self.message),
        };
        text.push_str(&self.fields);
        if text.len() > MESSAGE {
            text.truncate(text.floor_char_boundary(MESSAGE));
            text.extend(iter::once('…'));
        }
        text
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            "server" => self.server.push_str(value),
            // The message names the module, and its part means nothing to users.
            "module" | "part" => {}
            _ => self.record_debug(field, &value),
        }
    }
}
