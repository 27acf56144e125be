//! The messages of a client (RFC 1928, sections 3 and 4; RFC 1929), for servers and for clients. Parsers return the length
//! of the message last.

use crate::parse::{Parser, Unread};
use crate::{Address, USERS_VERSION, VERSION};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The command, which may be unknown.
    pub command: u8,
    /// The destination, or the address that the client will send datagrams from.
    pub address: Address<'a>,
}

/// Parses the methods that a client offers.
pub fn methods(bytes: &[u8]) -> Result<(&[u8], usize), Unread> {
    let mut parser = Parser::new(bytes, 2);
    parser.version()?;
    let count = parser.byte()?;
    let methods = parser.bytes(count.into())?;
    Ok((methods, parser.position()))
}

/// Parses a client's name and password.
pub fn credentials(bytes: &[u8]) -> Result<(&[u8], &[u8], usize), Unread> {
    let mut parser = Parser::new(bytes, 2);
    parser.users_version()?;
    let length = parser.byte()?;
    let name = parser.bytes(length.into())?;
    let length = parser.byte()?;
    let password = parser.bytes(length.into())?;
    Ok((name, password, parser.position()))
}

/// Parses a request. The byte that is reserved may have any value.
pub fn request(bytes: &[u8]) -> Result<(Request<'_>, usize), Unread> {
    let mut parser = Parser::new(bytes, 4);
    parser.version()?;
    let [command, _reserved] = parser.array()?;
    let address = Address::next(&mut parser)?;
    Ok((Request { command, address }, parser.position()))
}

/// Appends an offer of these methods.
pub fn write_methods(methods: &[u8], to: &mut Vec<u8>) {
    to.extend([VERSION, methods.len() as u8]);
    to.extend(methods);
}

/// Appends a name and a password of at most 255 bytes each.
pub fn write_credentials(name: &[u8], password: &[u8], to: &mut Vec<u8>) {
    to.push(USERS_VERSION);
    for text in [name, password] {
        to.push(text.len() as u8);
        to.extend(text);
    }
}

/// Appends a request. Returns false, and appends nothing, if the address has no form; see [`Address::write`].
pub fn write_request(request: &Request<'_>, to: &mut Vec<u8>) -> bool {
    let start = to.len();
    to.extend([VERSION, request.command, 0]);
    let written = request.address.write(to);
    if !written {
        to.truncate(start);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CONNECT, Host, Wrong};

    /// Checks that each beginning of a message asks for bytes that it has, and the whole one for none.
    fn check(message: &[u8], parse: impl Fn(&[u8]) -> Result<(), Unread>) {
        for cut in 0..message.len() {
            match parse(&message[..cut]) {
                Err(Unread::Short(missing)) => {
                    assert!((1..=message.len() - cut).contains(&missing))
                }
                other => panic!("{cut} bytes: {other:?}"),
            }
        }
        parse(message).unwrap();
    }

    #[test]
    fn messages_are_parsed_as_they_are_written() {
        let mut message = Vec::new();
        write_methods(&[0, 2], &mut message);
        assert_eq!(methods(&message), Ok((&[0, 2][..], 4)));
        check(&message, |bytes| methods(bytes).map(drop));

        message.clear();
        write_credentials(b"alice", b"", &mut message);
        assert_eq!(credentials(&message), Ok((&b"alice"[..], &b""[..], 8)));
        check(&message, |bytes| credentials(bytes).map(drop));

        message.clear();
        let sent = Request {
            command: CONNECT,
            address: Address {
                host: Host::Name(b"example.com"),
                port: 443,
            },
        };
        assert!(write_request(&sent, &mut message));
        assert_eq!(request(&message), Ok((sent, message.len())));
        check(&message, |bytes| request(bytes).map(drop));
    }

    #[test]
    fn other_protocols_are_told_from_their_first_byte() {
        for (first, words) in [
            (&b"\x04\x01"[..], "SOCKS4, not SOCKS5"),
            (b"GET / HTTP/1.1", "not SOCKS5, but probably HTTP"),
            (b"\x16\x03\x01", "TLS, not SOCKS5"),
            (b"\0", "not SOCKS5"),
        ] {
            let Err(Unread::Wrong(wrong @ Wrong::Version(_))) = methods(first) else {
                panic!("{first:?} was taken for SOCKS5");
            };
            assert_eq!(wrong.to_string(), words);
        }
        assert_eq!(credentials(&[5]), Err(Unread::Wrong(Wrong::UsersVersion)));
    }

    #[test]
    fn a_request_without_a_name_is_not_written() {
        let host = Host::Name(b"");
        let address = Address { host, port: 1 };
        let mut message = vec![7];
        let sent = Request {
            command: CONNECT,
            address,
        };
        assert!(!write_request(&sent, &mut message));
        assert_eq!(message, [7]);
    }
}
