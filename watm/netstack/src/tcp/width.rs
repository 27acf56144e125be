//! What the paths of flows take.

/// What every IPv6 path takes (RFC 8200 section 5), and nested tunnels mostly do.
const NARROW: usize = 1280;
/// What every IPv4 host takes (RFC 791 section 3.1).
const NARROWEST: usize = 576;

/// The largest packet of a flow: the stack's own MTU, or what is known to pass. A step and not
/// the number that somebody names, so that all flows share three interfaces, and nobody can make
/// a flow send tiny segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Width {
    #[default]
    Full,
    Narrow,
    Narrowest,
}

impl Width {
    pub(crate) const ALL: [Width; 3] = [Width::Full, Width::Narrow, Width::Narrowest];

    /// The one for a path that takes so much, according to a router of it.
    pub(crate) fn of_path(mtu: usize, is_ipv4: bool) -> Width {
        // Old routers tell 0 (RFC 1191 section 5); below 1280 nobody may be in IPv6.
        match is_ipv4 && mtu < NARROW {
            true => Width::Narrowest,
            false => Width::Narrow,
        }
    }

    /// In bytes, where the stack has this MTU.
    pub(crate) fn mtu(self, stack: usize) -> usize {
        match self {
            Width::Full => stack,
            Width::Narrow => stack.min(NARROW),
            Width::Narrowest => stack.min(NARROWEST),
        }
    }
}
