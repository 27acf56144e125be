//! The CPU time limit of one call into a component. `instance` begins and ticks it.

use std::time::Duration;

use cpu_time::ThreadTime;
use wasmtime::UpdateDeadline;

/// Bounds the CPU time of one call into the module.
///
/// It bounds CPU time and not wall time, so that a busy machine is not mistaken for a module that
/// spins. The clock is first read at the first tick within a call (10 ms), which the calls that
/// matter for speed never reach.
pub(super) struct CpuMeter {
    limit: Duration,
    /// The CPU time of the calling thread at the call's first tick.
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

    /// Begins a call.
    pub(super) fn begin(&mut self) {
        self.since = None;
    }

    /// Handles a tick within the call: interrupts a call that is over the limit.
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

    /// Returns the limit, if a call was stopped at it.
    pub(super) fn overrun(&self) -> Option<Duration> {
        self.overrun.then_some(self.limit)
    }
}

/// Returns the CPU time of this thread as a number, since a `ThreadTime` cannot move between
/// threads as instances do.
fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}
