//! Replies to requests (RFC 1928, section 6).

use std::fmt;

use crate::parse::{Parser, Unread};
use crate::{Address, VERSION};

/// The code of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply(pub u8);

impl Reply {
    /// The request is granted.
    pub const SUCCEEDED: Reply = Reply(0);
    /// A failure without a code of its own.
    pub const FAILED: Reply = Reply(1);
    /// The rules of the server forbid it.
    pub const NOT_ALLOWED: Reply = Reply(2);
    /// No route leads to the network.
    pub const NETWORK_UNREACHABLE: Reply = Reply(3);
    /// The host does not answer, or its name has no address.
    pub const HOST_UNREACHABLE: Reply = Reply(4);
    /// The host refused the connection.
    pub const REFUSED: Reply = Reply(5);
    /// The time to live expired. A timeout has no code of its own, and this is the nearest.
    pub const TIMED_OUT: Reply = Reply(6);
    /// The server lacks the command.
    pub const COMMAND_NOT_SUPPORTED: Reply = Reply(7);
    /// The server lacks the kind of address.
    pub const ADDRESS_NOT_SUPPORTED: Reply = Reply(8);
}

impl Reply {
    /// Parses the server's reply. Returns it with the address that the server uses, and its length in bytes. A refusal
    /// counts as complete with its code: some servers send no address then.
    pub fn parse(bytes: &[u8]) -> Result<(Reply, Address<'_>, usize), Unread> {
        let mut parser = Parser::new(bytes, 2);
        parser.version()?;
        let reply = Reply(parser.byte()?);
        if reply != Reply::SUCCEEDED {
            return Ok((reply, Address::NONE, bytes.len()));
        }
        parser.byte()?;
        let address = Address::next(&mut parser)?;
        Ok((reply, address, parser.position()))
    }

    /// Appends the reply, with the address that the server uses.
    pub fn write(self, address: Address<'_>, to: &mut Vec<u8>) {
        to.extend([VERSION, self.0, 0]);
        address.write(to);
    }
}

/// Writes the meaning and the code: `connection refused (reply 5)`.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            0 => "succeeded",
            1 => "general failure",
            2 => "not allowed by its rules",
            3 => "network unreachable",
            4 => "host unreachable",
            5 => "connection refused",
            6 => "TTL expired",
            7 => "command not supported",
            8 => "address type not supported",
            _ => "unknown reply",
        };
        write!(f, "{words} (reply {})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_parsed_as_it_is_written() {
        let address = Address::from(std::net::SocketAddr::from(([192, 0, 2, 1], 1080)));
        let mut bytes = Vec::new();
        Reply::SUCCEEDED.write(address, &mut bytes);
        assert_eq!(bytes, [5, 0, 0, 1, 192, 0, 2, 1, 4, 56]);
        let whole = Ok((Reply::SUCCEEDED, address, 10));
        assert_eq!(Reply::parse(&bytes), whole);
        for cut in 0..bytes.len() {
            assert!(matches!(Reply::parse(&bytes[..cut]), Err(Unread::Short(_))));
        }
    }

    #[test]
    fn a_refusal_needs_no_address() {
        let refusal = Reply::parse(&[5, 2]).unwrap();
        assert_eq!(refusal.0, Reply::NOT_ALLOWED);
        assert_eq!(refusal.0.to_string(), "not allowed by its rules (reply 2)");
        assert_eq!(Reply(99).to_string(), "unknown reply (reply 99)");
    }
}
