//! The result of a replay, which `watm replay` prints.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The result of a replay.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// The first difference from the recording.
    pub difference: Option<Difference>,
    /// The end of the recording.
    pub end: RecordingEnd,
    /// The number of events of the recording that were replayed.
    pub events: u64,
    /// The number of calls into the module.
    pub calls: u64,
    /// The number of instances of the module; more than one if it failed.
    pub instances: u64,
    /// The reasons why instances were lost, as in the recording or not; the first hundred.
    pub traps: Vec<String>,
    /// The records that the module logged; the first thousand.
    pub log: Vec<LogRecord>,
    /// The CPU time of the calls, with that of reading the recording meanwhile.
    pub cpu_time: Duration,
    /// The module's counters at the end, if an instance was left.
    pub counters: BTreeMap<String, u64>,
}

/// A difference between a replay and its recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The number of the event in the recording, from 1.
    pub event: u64,
    /// The number of the call into the module, from 1; 0 is before the first.
    pub call: u64,
    /// The export that was called.
    pub during: &'static str,
    /// The recorded action.
    pub expected: String,
    /// The module's action.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {}, in call {} ({}): expected {}, got {}",
            self.event, self.call, self.during, self.expected, self.got
        )
    }
}

/// The end of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The host ended it, for this reason.
    Ended(String),
    /// It was truncated, by a power cut or the end of the process; everything before was replayed.
    Truncated,
    /// The replay ended before the recording did, at a difference.
    #[default]
    NotReached,
}

/// A record that the module logged, truncated to 512 bytes. Control characters are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Its level.
    pub level: tracing::Level,
    /// The part of the module that logged it.
    pub part: String,
    /// The text.
    pub message: String,
}
