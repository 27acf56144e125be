//! Log records of modules, on their way to `tracing`. `component::log` and `output` write them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::Limits;
use watm_net::counters::Counters;
use watm_types::printable;

/// The longest message, in bytes; the rest is cut off.
pub const MAX_MESSAGE: usize = 4096;
/// The longest name of a module's part, in bytes.
pub const MAX_TARGET: usize = 64;
/// The number of seconds' worth of records that may come in one burst.
const BURST_SECONDS: f64 = 10.0;

/// The rate of a module's log records. Clones are the same: an instance that takes another's place
/// gets no new burst.
#[derive(Clone)]
pub struct LogRate(Arc<Mutex<Bucket>>);

struct Bucket {
    per_second: f64,
    /// The number of records that may still pass now.
    tokens: f64,
    refilled: Instant,
}

impl LogRate {
    /// Makes the rate of these limits.
    pub fn new(limits: &Limits) -> LogRate {
        let per_second = f64::from(limits.log_records_per_second);
        LogRate(Arc::new(Mutex::new(Bucket {
            per_second,
            tokens: per_second * BURST_SECONDS,
            refilled: Instant::now(),
        })))
    }

    fn take(&self) -> bool {
        let mut bucket = self.0.lock().expect("no panic under this lock");
        bucket.take(Instant::now())
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let gained = now.duration_since(self.refilled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.per_second * BURST_SECONDS);
        self.refilled = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

/// Passes on the log records of a module, up to a rate.
pub struct Logger {
    /// The server's name in the records.
    server: Arc<str>,
    counters: Arc<Counters>,
    least: tracing::Level,
    /// True if an instance beside this one has given the same warnings.
    pub warned: bool,
    rate: LogRate,
    /// The number of records dropped since the last one that passed, and their most severe level.
    dropped: Option<(u64, tracing::Level)>,
}

impl Logger {
    /// Passes on the records of a server's module that are no less severe than `least`.
    pub fn new(
        server: &str,
        rate: LogRate,
        counters: Arc<Counters>,
        least: tracing::Level,
    ) -> Logger {
        Logger {
            server: server.into(),
            counters,
            least,
            warned: false,
            rate,
            dropped: None,
        }
    }

    /// Passes on one record, or counts it as dropped.
    pub fn record(&mut self, level: tracing::Level, target: &str, message: &str) {
        if level > self.least || self.warned && level == tracing::Level::WARN {
            return;
        }
        if !self.rate.take() {
            let (count, gravest) = self.dropped.unwrap_or((0, level));
            self.dropped = Some((count + 1, gravest.min(level)));
            self.counters.dropped_log_records.add(1);
            return;
        }
        if let Some((count, gravest)) = self.dropped.take() {
            // The level is no higher than that of the dropped records: strangers can cause DEBUG
            // records.
            self.emit(
                gravest.max(tracing::Level::WARN),
                "log",
                &format!("dropped {count} log records; the module logs too fast"),
            );
        }
        self.emit(
            level,
            &printable(target, MAX_TARGET),
            &printable(message, MAX_MESSAGE),
        );
    }

    fn emit(&self, level: tracing::Level, part: &str, message: &str) {
        let server = &*self.server;
        match level {
            tracing::Level::ERROR => {
                tracing::error!(target: "watm::module", server, part, "{message}");
            }
            tracing::Level::WARN => {
                tracing::warn!(target: "watm::module", server, part, "{message}");
            }
            tracing::Level::INFO => {
                tracing::info!(target: "watm::module", server, part, "{message}");
            }
            tracing::Level::DEBUG => {
                tracing::debug!(target: "watm::module", server, part, "{message}");
            }
            tracing::Level::TRACE => {
                tracing::trace!(target: "watm::module", server, part, "{message}");
            }
        }
    }
}

/// Returns the level at which the subscriber lets module records through now.
pub fn subscribed_level() -> tracing::Level {
    use tracing::{Level, enabled};

    match () {
        () if enabled!(target: "watm::module", Level::TRACE) => Level::TRACE,
        () if enabled!(target: "watm::module", Level::DEBUG) => Level::DEBUG,
        () if enabled!(target: "watm::module", Level::INFO) => Level::INFO,
        () if enabled!(target: "watm::module", Level::WARN) => Level::WARN,
        () => Level::ERROR,
    }
}
