//! SOCKS5 (RFC 1928, RFC 1929), after the version byte. `Proxy::socks`, `association` and
//! `arguments` use it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::{Destination, Error, Refusal, Users, head};

pub(crate) const VERSION: u8 = 5;
pub(crate) const NO_AUTHENTICATION: u8 = 0;
pub(crate) const USER_AND_PASSWORD: u8 = 2;
const NOTHING_ACCEPTABLE: u8 = 0xff;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// A client's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Connect(Destination),
    /// The address that the client announces as its source.
    Associate(Destination),
}

/// The authentication of clients.
pub(crate) trait Authentication {
    /// Chooses one of the methods that a client offers. Returns `None` if none is acceptable.
    fn choose(&mut self, offered: &[u8]) -> Option<u8>;

    /// Returns true if a client with this name and password is served.
    fn knows(&mut self, name: &[u8], password: &[u8]) -> bool;
}

impl Authentication for &Users {
    fn choose(&mut self, offered: &[u8]) -> Option<u8> {
        let method = match self.is_everybody() {
            true => NO_AUTHENTICATION,
            false => USER_AND_PASSWORD,
        };
        offered.contains(&method).then_some(method)
    }

    fn knows(&mut self, name: &[u8], password: &[u8]) -> bool {
        self.has(name, password)
    }
}

/// Reads the client's request after authenticating it. The caller must answer, unless this fails.
pub(crate) async fn request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    who: &mut impl Authentication,
) -> Result<Request, Error> {
    authenticate(client, who).await?;
    let [version, command, _reserved, kind] = head::bytes(client, 4).await?[..] else {
        return Err(Error::Client("truncated request"));
    };
    if version != VERSION {
        return Err(Error::Client("the SOCKS version changed"));
    }
    let host = match kind {
        IPV4 => head::bytes(client, 4).await?,
        IPV6 => head::bytes(client, 16).await?,
        NAME => {
            let length = head::byte(client).await?;
            head::bytes(client, length.into()).await?
        }
        _ => {
            reply(client, 8, None).await?;
            return Err(Error::Unsupported("an unknown address type"));
        }
    };
    let port = head::bytes(client, 2).await?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    let Some(destination) = destination(kind, &host, port) else {
        reply(client, 1, None).await?;
        return Err(Error::Client("an invalid host name"));
    };
    match command {
        1 => Ok(Request::Connect(destination)),
        3 => Ok(Request::Associate(destination)),
        _ => {
            reply(client, 7, None).await?;
            Err(Error::Unsupported(match command {
                2 => "BIND",
                _ => "an unknown command",
            }))
        }
    }
}

async fn authenticate(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    who: &mut impl Authentication,
) -> Result<(), Error> {
    let count = head::byte(client).await?;
    let methods = head::bytes(client, count.into()).await?;
    let Some(method) = who.choose(&methods) else {
        write(client, &[VERSION, NOTHING_ACCEPTABLE]).await?;
        return Err(Error::Unknown);
    };
    write(client, &[VERSION, method]).await?;
    if method == NO_AUTHENTICATION {
        return Ok(());
    }
    /// The version of RFC 1929's subnegotiation.
    const VERSION_OF_USERS: u8 = 1;
    if head::byte(client).await? != VERSION_OF_USERS {
        return Err(Error::Client(
            "an unknown version of username and password (RFC 1929)",
        ));
    }
    let length = head::byte(client).await?;
    let name = head::bytes(client, length.into()).await?;
    let length = head::byte(client).await?;
    let password = head::bytes(client, length.into()).await?;
    let known = who.knows(&name, &password);
    write(client, &[VERSION_OF_USERS, u8::from(!known)]).await?;
    match known {
        true => Ok(()),
        false => Err(Error::Unknown),
    }
}

/// Answers the client with the outcome, and on success with the bound address.
pub(crate) async fn answer(
    client: &mut (impl AsyncWrite + Unpin),
    outcome: Result<Option<SocketAddr>, &Refusal>,
) -> Result<(), Error> {
    let (code, bound) = match outcome {
        Ok(bound) => (0, bound),
        Err(refusal) => (code(refusal), None),
    };
    reply(client, code, bound).await
}

/// Returns the reply code (RFC 1928 section 6). Timeouts have no code of their own; "TTL expired"
/// is the nearest.
fn code(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Failed(_) => 1,
        Refusal::NotAllowed => 2,
        Refusal::NetworkUnreachable => 3,
        Refusal::HostUnreachable => 4,
        Refusal::Refused => 5,
        Refusal::TimedOut => 6,
        Refusal::NotSupported => 7,
    }
}

async fn reply(
    client: &mut (impl AsyncWrite + Unpin),
    code: u8,
    bound: Option<SocketAddr>,
) -> Result<(), Error> {
    let bound = bound.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let mut reply = vec![VERSION, code, 0];
    append(&mut reply, &Destination::Address(bound));
    write(client, &reply).await
}

async fn write(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Error> {
    client.write_all(bytes).await.map_err(Error::client)
}

fn destination(kind: u8, host: &[u8], port: u16) -> Option<Destination> {
    let address = |ip| Some(Destination::Address(SocketAddr::new(ip, port)));
    match kind {
        IPV4 => address(Ipv4Addr::from(<[u8; 4]>::try_from(host).ok()?).into()),
        IPV6 => address(Ipv6Addr::from(<[u8; 16]>::try_from(host).ok()?).into()),
        _ => Destination::of(std::str::from_utf8(host).ok()?, port).ok(),
    }
}

/// Appends an address in the form of section 5. A name has 255 bytes at most.
fn append(out: &mut Vec<u8>, destination: &Destination) {
    match destination {
        Destination::Address(address) => match address.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => {
                out.push(IPV4);
                out.extend(ip.octets());
            }
            std::net::IpAddr::V6(ip) => {
                out.push(IPV6);
                out.extend(ip.octets());
            }
        },
        Destination::Name(name, _) => {
            out.extend([NAME, name.len() as u8]);
            out.extend(name.as_bytes());
        }
    }
    out.extend(destination.port().to_be_bytes());
}

/// The reason why a client's datagram is not forwarded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    Fragment,
    Malformed,
}

/// Splits a datagram into its destination and its payload (section 7).
pub(crate) fn unwrap(datagram: &[u8]) -> Result<(Destination, &[u8]), Unfit> {
    let (head, rest) = datagram.split_at_checked(4).ok_or(Unfit::Malformed)?;
    let (fragment, kind) = (head[2], head[3]);
    if head[..2] != [0, 0] {
        return Err(Unfit::Malformed);
    }
    if fragment != 0 {
        return Err(Unfit::Fragment);
    }
    let (length, rest) = match kind {
        IPV4 => (4, rest),
        IPV6 => (16, rest),
        NAME => {
            let (length, rest) = rest.split_first().ok_or(Unfit::Malformed)?;
            (usize::from(*length), rest)
        }
        _ => return Err(Unfit::Malformed),
    };
    let (host, rest) = rest.split_at_checked(length).ok_or(Unfit::Malformed)?;
    let (port, payload) = rest.split_at_checked(2).ok_or(Unfit::Malformed)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    match destination(kind, host, port) {
        Some(destination) if port != 0 => Ok((destination, payload)),
        _ => Err(Unfit::Malformed),
    }
}

/// Returns the header of datagrams from this address.
pub(crate) fn wrap(from: &Destination) -> Vec<u8> {
    let mut head = vec![0, 0, 0];
    append(&mut head, from);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_where_to_go() {
        for to in ["192.0.2.1:53", "[2001:db8::1]:53", "example.com:53"] {
            let to = Destination::parse(to, None).unwrap();
            let mut datagram = wrap(&to);
            datagram.extend(b"payload");
            assert_eq!(unwrap(&datagram), Ok((to, &b"payload"[..])));
            for len in 0..datagram.len() - 7 {
                assert_eq!(unwrap(&datagram[..len]), Err(Unfit::Malformed));
            }
            datagram[2] = 1;
            assert_eq!(unwrap(&datagram), Err(Unfit::Fragment));
        }
        let nowhere = wrap(&Destination::Name("a".to_owned(), 0));
        assert_eq!(unwrap(&nowhere), Err(Unfit::Malformed));
        assert_eq!(
            unwrap(&[1, 0, 0, 1, 1, 2, 3, 4, 0, 5]),
            Err(Unfit::Malformed)
        );
        assert_eq!(
            unwrap(&[0, 0, 0, 9, 1, 2, 3, 4, 0, 5]),
            Err(Unfit::Malformed)
        );
    }
}
