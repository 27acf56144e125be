//! Counters of a stream transport's connections, reported in its status. Used by `streams`.

/// Counts of the outcomes of connections.
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted: u64,
    pub dialled: u64,
    /// Ended in both directions.
    pub completed: u64,
    /// Ended by an error of a stream or of the codec.
    pub failed: u64,
    /// The application took no more flows, or refused this one.
    pub refused: u64,
    pub handshake_timeouts: u64,
    /// Closed during the handshake to make room for newer connections.
    pub handshakes_displaced: u64,
    /// Ended by a time limit of the transport.
    pub expired: u64,
}

impl Counters {
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("streams.accepted", self.accepted),
            ("streams.dialled", self.dialled),
            ("streams.completed", self.completed),
            ("streams.failed", self.failed),
            ("streams.refused", self.refused),
            ("streams.handshake_timeouts", self.handshake_timeouts),
            ("streams.handshakes_displaced", self.handshakes_displaced),
            ("streams.expired", self.expired),
        ]
    }
}
