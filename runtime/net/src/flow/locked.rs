//! The lock of a flow's state, which keeps the account of the module up to date. `stream` and
//! `datagrams` use it.

use std::ops::{Deref, DerefMut};

use crate::account::Charge;
use crate::sync::MutexGuard;

/// The state of a flow.
pub(super) trait FlowState {
    /// Returns the memory of its queued data, in bytes, and true if any payload is queued.
    fn waiting(&self) -> (usize, bool);

    /// Returns the charge for the flow, and the bytes of it that are for the flow itself.
    fn charge(&mut self) -> (&mut Charge, usize);
}

/// The state, while the lock is held. Charges its contents when the lock is released.
pub(super) struct Locked<'a, S: FlowState>(pub(super) MutexGuard<'a, S>);

impl<S: FlowState> Deref for Locked<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: FlowState> DerefMut for Locked<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

impl<S: FlowState> Drop for Locked<'_, S> {
    fn drop(&mut self) {
        let (bytes, waits) = self.0.waiting();
        let (charge, base) = self.0.charge();
        charge.set_flow(base + bytes, waits);
    }
}
