use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a replay has found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// The first thing that was not as recorded.
    pub difference: Option<Difference>,
    /// How the recording ends.
    pub end: RecordingEnd,
    /// Events of the recording that were replayed.
    pub events: u64,
    /// Calls into the module.
    pub calls: u64,
    /// Instances of the module; more than one if it failed.
    pub instances: u64,
    /// Why instances were lost, as in the recording or not; the first hundred.
    pub traps: Vec<String>,
    /// What the module logged; the first thousand records.
    pub log: Vec<LogRecord>,
    /// CPU time of the calls, with what it took to read the recording meanwhile.
    pub cpu_time: Duration,
    /// The module's counters at the end, if an instance was left to be asked.
    pub counters: BTreeMap<String, u64>,
}

/// A place where a replay and its recording differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which event of the recording, from 1.
    pub event: u64,
    /// Which call into the module, from 1; 0 is before the first.
    pub call: u64,
    /// In the call of which export.
    pub during: &'static str,
    /// What was recorded.
    pub expected: String,
    /// What the module did.
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

/// How a recording ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The host ended it, for this reason.
    Said(String),
    /// It was cut short, by a power cut or the end of the process; everything before was
    /// replayed.
    CutShort,
    /// The replay ended before the recording did, at a difference.
    #[default]
    NotReached,
}

/// A record that the module logged, up to 512 bytes of it. Control characters are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Its level.
    pub level: tracing::Level,
    /// The part of the module that it is of.
    pub part: String,
    /// What it says.
    pub message: String,
}
