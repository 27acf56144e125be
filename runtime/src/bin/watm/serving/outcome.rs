//! How a connection ended.

/// In logs and as the label `reason` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// Both directions, one after the other.
    Done,
    /// The client's side failed.
    ClientReset,
    /// The upstream's side failed.
    UpstreamReset,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamFailed,
    /// Not a destination that is allowed.
    Denied,
    Idle,
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
            Ending::UpstreamReset => "upstream-reset",
            Ending::UpstreamRefused => "upstream-refused",
            Ending::UpstreamTimeout => "upstream-timeout",
            Ending::UpstreamFailed => "upstream-failed",
            Ending::Denied => "denied",
            Ending::Idle => "idle",
            Ending::Lifetime => "lifetime",
            Ending::Limit => "limit",
            Ending::ClientLimit => "client-limit",
            Ending::Forced => "forced",
        }
    }
}
