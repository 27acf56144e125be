//! SOCKS5 (RFC 1928, RFC 1929), after the version byte. `Proxy::socks`, `association` and
//! `arguments` use it.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use watm_socks_wire::{self as wire, Address, Host, Reply, Unread, Wrong};
pub(crate) use watm_socks_wire::{NO_AUTHENTICATION, USER_AND_PASSWORD, Unfit, VERSION};
use watm_socks_wire::{NOTHING_ACCEPTABLE, USERS_VERSION};

use crate::{Destination, Error, Refusal, Users, head};

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
    let message = head::message(client, &[], |bytes| wire::request(bytes).map(drop)).await?;
    let (request, _) = match wire::request(&message) {
        Ok(request) => request,
        Err(Unread::Wrong(Wrong::AddressKind)) => {
            reply(client, Reply::ADDRESS_NOT_SUPPORTED, None).await?;
            return Err(Error::Unsupported("an unknown address type"));
        }
        Err(_) => return Err(Error::Client("the SOCKS version changed")),
    };
    let Some(destination) = destination(&request.address) else {
        reply(client, Reply::FAILED, None).await?;
        return Err(Error::Client("an invalid host name"));
    };
    match request.command {
        wire::CONNECT => Ok(Request::Connect(destination)),
        wire::ASSOCIATE => Ok(Request::Associate(destination)),
        command => {
            reply(client, Reply::COMMAND_NOT_SUPPORTED, None).await?;
            Err(Error::Unsupported(match command {
                wire::BIND => "BIND",
                _ => "an unknown command",
            }))
        }
    }
}

async fn authenticate(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    who: &mut impl Authentication,
) -> Result<(), Error> {
    let message = head::message(client, &[VERSION], |bytes| wire::methods(bytes).map(drop)).await?;
    let (methods, _) = wire::methods(&message).map_err(|_| Error::Client("not SOCKS5"))?;
    let Some(method) = who.choose(methods) else {
        write(client, &[VERSION, NOTHING_ACCEPTABLE]).await?;
        return Err(Error::Unknown);
    };
    write(client, &[VERSION, method]).await?;
    if method == NO_AUTHENTICATION {
        return Ok(());
    }
    let message = head::message(client, &[], |bytes| wire::credentials(bytes).map(drop)).await?;
    let (name, password, _) = wire::credentials(&message)
        .map_err(|_| Error::Client("an unknown version of username and password (RFC 1929)"))?;
    let known = who.knows(name, password);
    write(client, &[USERS_VERSION, u8::from(!known)]).await?;
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
        Ok(bound) => (Reply::SUCCEEDED, bound),
        Err(refusal) => (code(refusal), None),
    };
    reply(client, code, bound).await
}

/// Returns the reply code (RFC 1928 section 6).
fn code(refusal: &Refusal) -> Reply {
    match refusal {
        Refusal::Failed(_) => Reply::FAILED,
        Refusal::NotAllowed => Reply::NOT_ALLOWED,
        Refusal::NetworkUnreachable => Reply::NETWORK_UNREACHABLE,
        Refusal::HostUnreachable => Reply::HOST_UNREACHABLE,
        Refusal::Refused => Reply::REFUSED,
        Refusal::TimedOut => Reply::TIMED_OUT,
        Refusal::NotSupported => Reply::COMMAND_NOT_SUPPORTED,
    }
}

async fn reply(
    client: &mut (impl AsyncWrite + Unpin),
    code: Reply,
    bound: Option<SocketAddr>,
) -> Result<(), Error> {
    let mut reply = Vec::new();
    code.write(bound.map_or(Address::NONE, Address::from), &mut reply);
    write(client, &reply).await
}

async fn write(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Error> {
    client.write_all(bytes).await.map_err(Error::client)
}

fn destination(address: &Address<'_>) -> Option<Destination> {
    match address.host {
        Host::Ip(ip) => Some(Destination::Address(SocketAddr::new(ip, address.port))),
        Host::Name(name) => Destination::of(std::str::from_utf8(name).ok()?, address.port).ok(),
    }
}

/// Splits a datagram into its destination and its payload (section 7).
pub(crate) fn unwrap(datagram: &[u8]) -> Result<(Destination, &[u8]), Unfit> {
    let (address, payload) = wire::split(datagram)?;
    let destination = destination(&address).ok_or(Unfit::Malformed)?;
    Ok((destination, payload))
}

/// Returns the header of datagrams from this address. A name has 255 bytes at most.
pub(crate) fn wrap(from: &Destination) -> Vec<u8> {
    let address = match from {
        Destination::Address(address) => Address::from(*address),
        Destination::Name(name, port) => Address {
            host: Host::Name(name.as_bytes()),
            port: *port,
        },
    };
    wire::head(address).unwrap_or_default()
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
