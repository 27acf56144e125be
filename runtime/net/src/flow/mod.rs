//! Flows: queues between a module and the application. `component` and `water` hold the modules'
//! ends.
//!
//! Each flow is one value behind a mutex, which is held only to move bytes or to register a waker.
//! Wakers are called after it is released.

mod chunks;
mod datagrams;
mod held;
mod join;
#[cfg(feature = "socks")]
mod proxied;
mod stream;

pub use datagrams::{DatagramFlow, GuestDatagrams};
pub use datagrams::{charge as charge_datagrams, pair as datagram_pair};
pub use held::Held;
pub use join::{JoinError, Meter};
#[cfg(feature = "socks")]
pub use proxied::join_failure;
pub use stream::StreamFlow;
pub use stream::{
    CloseWatch, GuestStream, charge as charge_stream, charge_anyway as charge_stream_anyway,
    pair as stream_pair,
};

use crate::FlowInfo;

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
