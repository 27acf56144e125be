//! The timestamp clocks of both ends of a connection (RFC 7323).

use watm_core::Instant;

use super::options::Timestamp;

/// The clocks of a connection whose ends both use timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// The offset of the local one.
    pub offset: u32,
    /// The last timestamp of the peer in order (TS.Recent).
    pub recent: u32,
}

impl Clocks {
    /// The timestamp of a segment that leaves now.
    pub(crate) fn timestamp(&self, now: Instant) -> Timestamp {
        Timestamp {
            value: reading(self.offset, now),
            echo: self.recent,
        }
    }

    /// Returns true if a timestamp of the peer precedes the last one in order (RFC 7323
    /// section 5.2).
    pub(crate) fn is_old(&self, timestamp: Timestamp) -> bool {
        precedes(timestamp.value, self.recent)
    }

    /// The clocks after a timestamp of the peer, or `None` if that is old.
    pub(crate) fn after(self, timestamp: Timestamp) -> Option<Clocks> {
        (!self.is_old(timestamp)).then_some(Clocks {
            recent: timestamp.value,
            ..self
        })
    }
}

/// The local clock with this offset: a tick for each millisecond (RFC 7323 section 5.4).
pub(crate) fn reading(offset: u32, now: Instant) -> u32 {
    offset.wrapping_add((now.0 / 1_000_000) as u32)
}

/// Returns true if a clock showed `first` before `second`.
pub(crate) fn precedes(first: u32, second: u32) -> bool {
    (second.wrapping_sub(first) as i32) > 0
}
