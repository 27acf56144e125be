//! The reasons for refusals, with their counters. Used by `account`, `codec`, `datagrams` and
//! `opening`.

use std::fmt;

use crate::refused::Refused;

/// The reason why a connection or a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has no acceptable header.
    Header(Refused),
    /// Its sender is not trusted.
    Source,
    /// The header describes another protocol than the one that carried it.
    Protocol,
    /// The header is LOCAL or UNKNOWN, which is not accepted.
    Local,
}

/// The names of the counters, in the order of [`Reason::index`].
pub const COUNTERS: [&str; 17] = [
    "proxy.refused.not_proxy",
    "proxy.refused.too_long",
    "proxy.refused.line_end",
    "proxy.refused.fields",
    "proxy.refused.address",
    "proxy.refused.port",
    "proxy.refused.command",
    "proxy.refused.family",
    "proxy.refused.unspecified",
    "proxy.refused.too_short",
    "proxy.refused.tlv_length",
    "proxy.refused.tlv_twice",
    "proxy.refused.tlv_size",
    "proxy.refused.checksum",
    "proxy.refused.source",
    "proxy.refused.protocol",
    "proxy.refused.local",
];

impl Reason {
    /// The index in [`COUNTERS`].
    pub fn index(self) -> usize {
        match self {
            Reason::Header(refused) => match refused {
                Refused::NotProxy => 0,
                Refused::TooLong => 1,
                Refused::LineEnd => 2,
                Refused::Fields => 3,
                Refused::Address => 4,
                Refused::Port => 5,
                Refused::Command => 6,
                Refused::Family => 7,
                Refused::Unspecified => 8,
                Refused::TooShort => 9,
                Refused::TlvLength => 10,
                Refused::TlvTwice => 11,
                Refused::TlvSize => 12,
                Refused::Checksum => 13,
            },
            Reason::Source => 14,
            Reason::Protocol => 15,
            Reason::Local => 16,
        }
    }
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Reason {
        Reason::Header(refused)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Header(refused) => refused.fmt(f),
            Reason::Source => f.write_str("its sender is not in `from`"),
            Reason::Protocol => {
                f.write_str("the header is for a stream but came in a datagram, or the reverse")
            }
            Reason::Local => f.write_str("the header says LOCAL or UNKNOWN, which is not accepted"),
        }
    }
}
