//! A cursor over a message of which a part may be missing. The parsers of this crate use it.

use std::fmt;

use crate::{USERS_VERSION, VERSION};

/// The reason why bytes are not a whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// At least this many bytes are missing, and no byte of the message precedes them.
    Short(usize),
    /// They are not the beginning of this message.
    Wrong(Wrong),
}

/// The mistake in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Another protocol than SOCKS5, which begins with this byte.
    Version(u8),
    /// Another version of the messages of RFC 1929.
    UsersVersion,
    /// An unknown kind of address.
    AddressKind,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Version(4) => "SOCKS4, not SOCKS5",
            Wrong::Version(0x16) => "TLS, not SOCKS5",
            Wrong::Version(b'A'..=b'Z') => "not SOCKS5, but probably HTTP",
            Wrong::Version(_) => "not SOCKS5",
            Wrong::UsersVersion => "an unknown version of user and password (RFC 1929)",
            Wrong::AddressKind => "an unknown kind of address",
        })
    }
}

/// The bytes of a message, and the position after those that were parsed.
pub struct Parser<'a> {
    bytes: &'a [u8],
    position: usize,
    /// The fewest bytes that decide anything, so that a caller may ask for as many at once.
    least: usize,
}

impl<'a> Parser<'a> {
    pub fn new(bytes: &'a [u8], least: usize) -> Parser<'a> {
        Parser {
            bytes,
            position: 0,
            least,
        }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let rest = &self.bytes[self.position..];
        let Some((taken, _)) = rest.split_at_checked(count) else {
            let least = self.least.saturating_sub(self.bytes.len());
            return Err(Unread::Short(least.max(count - rest.len())));
        };
        self.position += count;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("as many bytes as asked for"))
    }

    pub fn byte(&mut self) -> Result<u8, Unread> {
        self.array().map(|[byte]| byte)
    }

    /// Parses the version of SOCKS5.
    pub fn version(&mut self) -> Result<(), Unread> {
        match self.byte()? {
            VERSION => Ok(()),
            other => Err(Unread::Wrong(Wrong::Version(other))),
        }
    }

    /// Parses the version of RFC 1929.
    pub fn users_version(&mut self) -> Result<(), Unread> {
        match self.byte()? {
            USERS_VERSION => Ok(()),
            _ => Err(Unread::Wrong(Wrong::UsersVersion)),
        }
    }
}
