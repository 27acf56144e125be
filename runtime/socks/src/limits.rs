//! Limits for one client of a proxy.

use std::time::Duration;

/// Resources that one client may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for the request. Default 10 s: programs send it at once, or on a busy machine
    /// within a few seconds.
    pub handshake: Duration,
    /// Destinations of one client's datagrams at once. A further one replaces the least recently
    /// used. Default 256: a browser with QUIC has some dozens.
    pub flows: usize,
    /// The time without a datagram in either direction after which a flow ends. Default 60 s, as in
    /// the project's modules.
    pub idle: Duration,
    /// Datagrams that wait while their flow is being dialled. Default 64.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            handshake: Duration::from_secs(10),
            flows: 256,
            idle: Duration::from_secs(60),
            queue: 64,
        }
    }
}
