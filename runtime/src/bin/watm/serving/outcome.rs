//! How a connection ended.

/// In logs and as the label `reason` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// Both directions, one after the other.
    Done,
    /// The client aborted, or is gone.
    ClientReset,
    /// The module ended it: the client broke the protocol, for instance.
    Module,
    /// The upstream's side failed.
    UpstreamReset,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamFailed,
    /// Not a destination that is allowed.
    Denied,
    Idle,
    /// A flow of datagrams, idle the longest, made room for another.
    Evicted,
    /// It was as old as it may be.
    Lifetime,
    /// Too many connections.
    Limit,
    /// Too many of this client.
    ClientLimit,
    /// It did not end while the program was ending.
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
