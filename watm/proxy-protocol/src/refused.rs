//! The errors of the parser.

use std::{error, fmt};

/// The reason why bytes are not an acceptable header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The beginning matches neither version, or one that is not accepted.
    NotProxy,
    /// The header is longer than the limit.
    TooLong,
    /// Version 1: a CR or LF that is not CRLF, or no CRLF where one must be.
    LineEnd,
    /// Version 1: missing or surplus fields, or fields not separated by one space.
    Fields,
    /// An address that is not one of its family.
    Address,
    /// A malformed port: it must be 0 to 65535, without a sign or leading zeros.
    Port,
    /// Version 2: an undefined version or command.
    Command,
    /// Version 2: an undefined family or protocol.
    Family,
    /// Version 2: PROXY without addresses.
    Unspecified,
    /// Version 2: a header shorter than its addresses.
    TooShort,
    /// Version 2: TLVs that do not fill the header exactly.
    TlvLength,
    /// Version 2: a repeated TLV of a type that may occur once.
    TlvTwice,
    /// Version 2: a TLV with an impossible length.
    TlvSize,
    /// Version 2: a wrong checksum.
    Checksum,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotProxy => "it does not begin with a PROXY protocol header",
            Refused::TooLong => "the header is longer than the limit",
            Refused::LineEnd => "the line does not end with CRLF",
            Refused::Fields => {
                "the line does not have the fields of its protocol, separated by one space"
            }
            Refused::Address => "an address is not of the header's family",
            Refused::Port => "a port is not a number from 0 to 65535",
            Refused::Command => "the version is not 2, or the command is neither LOCAL nor PROXY",
            Refused::Family => "the address family or the protocol is not defined",
            Refused::Unspecified => "PROXY without addresses",
            Refused::TooShort => "the header is shorter than its addresses",
            Refused::TlvLength => "the TLVs do not fill the header",
            Refused::TlvTwice => "a duplicate TLV",
            Refused::TlvSize => "a TLV has an invalid length",
            Refused::Checksum => "the checksum is wrong",
        })
    }
}

impl error::Error for Refused {}
