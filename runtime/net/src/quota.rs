//! A number of things that a module may have at once: flows, or connections that hold a descriptor.
//! Servers, dialers and WATER hosts take a permit for each.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is open, up to a limit. Clones count together.
#[derive(Clone)]
pub struct Quota {
    open: Arc<AtomicUsize>,
    limit: usize,
}

impl Quota {
    /// Creates a quota with this limit, of which nothing is taken.
    pub fn new(limit: usize) -> Quota {
        Quota {
            open: Arc::default(),
            limit,
        }
    }

    /// Returns the same count, with a limit of `limit` at most.
    pub fn limited(&self, limit: usize) -> Quota {
        Quota {
            open: self.open.clone(),
            limit: self.limit.min(limit),
        }
    }

    /// Returns the limit.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of permits that are taken.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes one; `None` if the limit is reached.
    pub fn permit(&self) -> Option<Permit> {
        let permit = Permit {
            open: self.open.clone(),
        };
        let before = permit.open.fetch_add(1, Ordering::Relaxed);
        (before < self.limit).then_some(permit)
    }
}

/// One of a [`Quota`], until it is dropped.
pub struct Permit {
    open: Arc<AtomicUsize>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
