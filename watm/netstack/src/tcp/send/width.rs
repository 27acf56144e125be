//! The path MTU of flows, in steps.

use crate::ip::LEAST_MTU_V6;

/// The MTU of every IPv6 path, and of most nested tunnels.
const NARROW: usize = LEAST_MTU_V6;
/// The packet size that every IPv4 host accepts (RFC 791 section 3.1).
pub(crate) const NARROWEST: usize = 576;

/// The largest packet of a flow: the MTU of the path to its peer, or a size known to pass behind
/// it. It is a step instead of a reported number, so that flows share a few interfaces, and a
/// forged report cannot make a flow send tiny segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Width {
    #[default]
    Full,
    Narrow,
    Narrowest,
}

impl Width {
    /// The width for a path with this MTU, as reported by a router.
    pub(crate) fn of_path(mtu: usize, is_ipv4: bool) -> Width {
        // Old routers report 0 (RFC 1191 section 5). IPv6 forbids values below 1280.
        match is_ipv4 && mtu < NARROW {
            true => Width::Narrowest,
            false => Width::Narrow,
        }
    }

    /// The width after this many unanswered full segments in a row. They may be too long for a
    /// router that does not report it (RFC 2923 section 2.1).
    pub(crate) fn after_silence(timeouts: u32, is_ipv4: bool) -> Width {
        match timeouts {
            0..2 => Width::Full,
            4.. if is_ipv4 => Width::Narrowest,
            _ => Width::Narrow,
        }
    }

    /// The next larger width.
    pub(crate) fn wider(self) -> Width {
        match self {
            Width::Narrowest => Width::Narrow,
            Width::Narrow | Width::Full => Width::Full,
        }
    }

    /// The size in bytes, on a path to the peer with this MTU.
    pub(crate) fn mtu(self, path: usize) -> usize {
        match self {
            Width::Full => path,
            Width::Narrow => path.min(NARROW),
            Width::Narrowest => path.min(NARROWEST),
        }
    }
}
