//! What the paths of flows take.

/// What every IPv6 path takes (RFC 8200 section 5), and nested tunnels mostly do.
pub(crate) const NARROW: usize = 1280;
/// What every IPv4 host takes (RFC 791 section 3.1).
pub(crate) const NARROWEST: usize = 576;

/// The largest packet of a flow: what the way to its peer takes, or what is known to pass behind
/// that. A step and not the number that somebody names, so that flows share a few interfaces, and
/// nobody can make a flow send tiny segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Width {
    #[default]
    Full,
    Narrow,
    Narrowest,
}

impl Width {
    /// The one for a path that takes so much, according to a router of it.
    pub(crate) fn of_path(mtu: usize, is_ipv4: bool) -> Width {
        // Old routers tell 0 (RFC 1191 section 5); below 1280 nobody may be in IPv6.
        match is_ipv4 && mtu < NARROW {
            true => Width::Narrowest,
            false => Width::Narrow,
        }
    }

    /// The one for a path that did not answer full segments so often in a row: they may be too long
    /// for a router that does not say so (RFC 2923 section 2.1).
    pub(crate) fn after_silence(timeouts: u32, is_ipv4: bool) -> Width {
        match timeouts {
            0..2 => Width::Full,
            4.. if is_ipv4 => Width::Narrowest,
            _ => Width::Narrow,
        }
    }

    /// In bytes, where the way to the peer takes so many.
    pub(crate) fn mtu(self, path: usize) -> usize {
        match self {
            Width::Full => path,
            Width::Narrow => path.min(NARROW),
            Width::Narrowest => path.min(NARROWEST),
        }
    }
}
