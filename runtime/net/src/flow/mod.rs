//! Flows: queues between a module and the application. `component` and `water` hold the modules'
//! ends.
//!
//! Each flow is one value behind a mutex, which is held only to move bytes or to register a waker.
//! Wakers are called after it is released.

mod chunks;
mod datagrams;
mod join;
mod keep_alive;
mod locked;
#[cfg(feature = "socks")]
mod proxied;
mod stream;

pub use datagrams::pair as datagram_pair;
pub use datagrams::{DatagramFlow, GuestDatagrams};
pub use join::{JoinError, Meter};
pub use keep_alive::KeepAlive;
#[cfg(feature = "socks")]
pub use proxied::join_failure;
pub use stream::StreamFlow;
pub use stream::{
    CloseWatch, GuestIo, GuestStream, charge_anyway as charge_stream_anyway, pair as stream_pair,
};

use std::sync::Arc;

use crate::account::{Account, Charge};
use crate::{ErrorCode, FlowInfo, Limits, Network};

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

/// Charges the account of a module for a stream or for datagrams, and for what the application keeps
/// for the flow. Fails with [`ErrorCode::LimitReached`].
pub fn charge(
    network: Network,
    info: &FlowInfo,
    limits: &Limits,
    account: &Arc<Account>,
) -> Result<Charge, ErrorCode> {
    let own = match network {
        Network::Tcp => stream::FLOW_BYTES,
        Network::Udp => datagrams::FLOW_BYTES,
    };
    account.charge(own + limits.flow_bytes + info.kept_bytes())
}
