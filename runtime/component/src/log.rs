//! The import `log`: passes a module's records on to `log::Logger`.

use super::bindings::watm::transport::log;
use super::convert::tracing_level;
use super::{Failure, State};
use crate::recording::import;
use watm_engine::log::MAX_TARGET;
use watm_types::cut;

/// The most bytes of a message in a recording. The rate of records is not limited there.
const MAX_RECORDED: usize = 512;

impl log::Host for State {
    fn log(&mut self, level: log::Level, target: String, message: String) -> wasmtime::Result<()> {
        self.turn(import::Log, || {
            (
                level,
                cut(&target, MAX_TARGET),
                cut(&message, MAX_RECORDED),
                message.len() as u64,
            )
        })
        .take(self, |state| {
            state.logger.record(tracing_level(level), &target, &message);
            Ok(())
        })
        .map_err(Failure::into_trap)
    }
}
