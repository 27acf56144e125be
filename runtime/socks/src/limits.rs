use std::time::Duration;

/// What one client may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take to say what it wants. Default 10 s: a person's program says it at
    /// once, on a machine that is busy within a few seconds.
    pub handshake: Duration,
    /// Destinations of one client's datagrams at once; the one that was not used for longest gives
    /// way. Default 256: a browser with QUIC has some dozens.
    pub flows: usize,
    /// A flow without a datagram in either direction for this long ends. Default 60 s, as the
    /// modules of the project have it.
    pub idle: Duration,
    /// Datagrams that wait for a flow that is being dialled. Default 64.
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
