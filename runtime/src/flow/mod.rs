//! Flows: queues between a module and the application. `component` and `water` hold the modules'
//! ends.
//!
//! Each flow is one value behind a mutex, which is held only to move bytes or to register a waker.
//! Wakers are called after it is released.

mod chunks;
mod datagrams;
mod held;
mod join;
mod stream;

pub use datagrams::{DatagramFlow, GuestDatagrams};
pub(crate) use datagrams::{charge as charge_datagrams, pair as datagram_pair};
pub(crate) use held::Held;
pub use join::{JoinError, Meter};
pub use stream::StreamFlow;
pub(crate) use stream::{
    CloseWatch, GuestStream, charge as charge_stream, charge_anyway as charge_stream_anyway,
    pair as stream_pair,
};

use std::sync::Arc;

use crate::FlowInfo;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A flow of the inner side, between a module and the application.
#[derive(Debug)]
pub enum Flow {
    /// A stream of bytes.
    Stream(StreamFlow),
    /// Datagrams.
    Datagrams(DatagramFlow),
}

impl Flow {
    /// Returns what is known of the flow.
    pub fn info(&self) -> &FlowInfo {
        match self {
            Flow::Stream(flow) => flow.info(),
            Flow::Datagrams(flow) => flow.info(),
        }
    }
}

/// The most entries that the table of an empty queue may keep capacity for: less than a kilobyte.
const KEPT_CAPACITY: usize = 32;

/// Counts the flows that hold memory, or the connections that hold a descriptor, up to a limit.
#[derive(Clone)]
pub(crate) struct FlowCount {
    open: Arc<AtomicUsize>,
    limit: usize,
}

impl FlowCount {
    pub(crate) fn new(limit: usize) -> FlowCount {
        FlowCount {
            open: Arc::default(),
            limit,
        }
    }

    /// Returns the same count, with a limit of `limit` at most.
    pub(crate) fn limited(&self, limit: usize) -> FlowCount {
        FlowCount {
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

    /// Reserves a place; `None` if the limit is reached.
    pub(crate) fn permit(&self) -> Option<FlowPermit> {
        let permit = FlowPermit {
            open: self.open.clone(),
        };
        let before = permit.open.fetch_add(1, Ordering::Relaxed);
        (before < self.limit).then_some(permit)
    }
}

/// A place in a [`FlowCount`], held by a flow for as long as either end of it lives, or by a
/// connection.
pub(crate) struct FlowPermit {
    open: Arc<AtomicUsize>,
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
