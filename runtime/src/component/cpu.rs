use std::time::Duration;

use cpu_time::ThreadTime;
use wasmtime::UpdateDeadline;

/// Bounds the CPU time of one call.
///
/// CPU time and not wall time, so that a busy machine is not mistaken for a module that
/// spins. The clock is first read at the first tick within a call (10 ms), which the
/// calls that matter for speed never reach.
pub(super) struct CpuMeter {
    limit: Duration,
    /// CPU time of the thread that makes the call.
    since: Option<Duration>,
    overrun: bool,
}

impl CpuMeter {
    pub(super) fn new(limit: Duration) -> CpuMeter {
        CpuMeter {
            limit,
            since: None,
            overrun: false,
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self) {
        self.since = None;
    }

    /// A tick within the call.
    pub(super) fn tick(&mut self) -> UpdateDeadline {
        match &self.since {
            None => self.since = Some(thread_time()),
            Some(since) if thread_time().saturating_sub(*since) >= self.limit => {
                self.overrun = true;
                return UpdateDeadline::Interrupt;
            }
            Some(_) => {}
        }
        UpdateDeadline::Continue(1)
    }

    /// Whether a call was stopped for taking too long.
    pub(super) fn overrun(&self) -> Option<Duration> {
        self.overrun.then_some(self.limit)
    }
}

/// A number, since a value of `ThreadTime` does not go from thread to thread as instances do.
fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}
