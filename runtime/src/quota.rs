//! A number of things that a module may have at once: flows, or connections that hold a descriptor.
//! Servers, dialers and WATER hosts take a permit for each.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is open, up to a limit. Clones count together.
#[derive(Clone)]
pub(crate) struct Quota {
    open: Arc<AtomicUsize>,
    limit: usize,
}

impl Quota {
    pub(crate) fn new(limit: usize) -> Quota {
        Quota {
            open: Arc::default(),
            limit,
        }
    }

    /// Returns the same count, with a limit of `limit` at most.
    pub(crate) fn limited(&self, limit: usize) -> Quota {
        Quota {
            open: self.open.clone(),
            limit: self.limit.min(limit),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes one; `None` if the limit is reached.
    pub(crate) fn permit(&self) -> Option<Permit> {
        let permit = Permit {
            open: self.open.clone(),
        };
        let before = permit.open.fetch_add(1, Ordering::Relaxed);
        (before < self.limit).then_some(permit)
    }
}

/// One of a [`Quota`], until it is dropped.
pub(crate) struct Permit {
    open: Arc<AtomicUsize>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
