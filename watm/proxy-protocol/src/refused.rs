use std::{error, fmt};

/// Why something is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It begins like neither version, or like one that is not taken.
    NotProxy,
    /// It is longer than is taken.
    TooLong,
    /// Version 1: a CR or LF that is not CRLF, or no CRLF where one must be.
    LineEnd,
    /// Version 1: fields are missing, or too many, or not separated by one space.
    Fields,
    /// An address is none of its family.
    Address,
    /// A port is none: 0 to 65535, without a sign or leading zeros.
    Port,
    /// Version 2: a version or command that is not defined.
    Command,
    /// Version 2: a family or protocol that is not defined.
    Family,
    /// Version 2: the sender says PROXY and names no addresses.
    Unspecified,
    /// Version 2: shorter than its addresses.
    TooShort,
    /// Version 2: the facts do not fill the header exactly.
    TlvLength,
    /// Version 2: a fact is there twice that can be there once.
    TlvTwice,
    /// Version 2: a fact has a length that it cannot have.
    TlvSize,
    /// Version 2: the checksum is wrong.
    Checksum,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotProxy => "it does not begin with a PROXY protocol header",
            Refused::TooLong => "the header is longer than is taken",
            Refused::LineEnd => "the line does not end with CRLF",
            Refused::Fields => {
                "the line has not the fields of its protocol, one space between them"
            }
            Refused::Address => "an address is none of the header's family",
            Refused::Port => "a port is not a number from 0 to 65535",
            Refused::Command => "the version is not 2, or the command neither LOCAL nor PROXY",
            Refused::Family => "the address family or the protocol is not defined",
            Refused::Unspecified => "PROXY without addresses",
            Refused::TooShort => "the header is shorter than its addresses",
            Refused::TlvLength => "the TLVs do not fill the header",
            Refused::TlvTwice => "a TLV is there twice",
            Refused::TlvSize => "a TLV has a length that it cannot have",
            Refused::Checksum => "the checksum is wrong",
        })
    }
}

impl error::Error for Refused {}
