//! Reasons why connections end. Used by `carry`, `gate`, `metrics` and `upstream`.

/// The reason why a connection ended, in logs and as the label `reason` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// Both directions ended, one after the other.
    Done,
    /// The client reset the connection, or is gone.
    ClientReset,
    /// The module ended it, for instance because the client broke the protocol.
    Module,
    /// The connection to the upstream failed.
    UpstreamReset,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamFailed,
    /// The destination is not allowed.
    Denied,
    Idle,
    /// A datagram flow made room for another, being idle the longest.
    Evicted,
    /// It reached the longest allowed lifetime.
    Lifetime,
    /// The listener has too many connections.
    Limit,
    /// The client has too many connections.
    ClientLimit,
    /// It did not end in time while the program was ending.
    Forced,
}

impl Ending {
    pub(super) fn name(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::ClientReset => "client-reset",
            Ending::Module => "module",
            Ending::UpstreamReset => "upstream-reset",
            Ending::UpstreamRefused => "upstream-refused",
            Ending::UpstreamTimeout => "upstream-timeout",
            Ending::UpstreamFailed => "upstream-failed",
            Ending::Denied => "denied",
            Ending::Idle => "idle",
            Ending::Evicted => "evicted",
            Ending::Lifetime => "lifetime",
            Ending::Limit => "limit",
            Ending::ClientLimit => "client-limit",
            Ending::Forced => "forced",
        }
    }
}
