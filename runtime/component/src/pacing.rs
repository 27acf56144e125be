//! The import `pacing`: the pace of the module's calls.

use std::time::Duration;

use super::bindings::watm::transport::pacing;
use super::{Failure, State};
use crate::recording::import;

/// The longest interval between calls that a module may ask for.
const LONGEST_COALESCING: Duration = Duration::from_millis(1);

impl pacing::Host for State {
    fn coalesce(&mut self, microseconds: u32) -> wasmtime::Result<()> {
        self.turn(import::Coalesce, || (microseconds,))
            .take(self, |state| {
                let interval = Duration::from_micros(microseconds.into());
                state.coalescing = interval.min(LONGEST_COALESCING);
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}
