//! SOCKS4 and SOCKS4a, after the version byte, for `Proxy::socks`.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::{Destination, Error, Refusal, Users, head};

/// The longest name of a user or a host, in bytes.
const LONGEST: usize = 255;
const CONNECT: u8 = 1;

/// Reads the client's request. The caller must answer, unless this fails.
pub(crate) async fn request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    users: &Users,
) -> Result<Destination, Error> {
    let said = read(client).await;
    // The protocol has no passwords.
    let said = match said {
        Ok(_) if !users.is_everybody() => Err(Error::Unknown),
        other => other,
    };
    if said.is_err() {
        answer(client, Err(&Refusal::NotAllowed)).await?;
    }
    said
}

async fn read(client: &mut (impl AsyncRead + Unpin)) -> Result<Destination, Error> {
    let command = head::byte(client).await?;
    let place = head::bytes(client, 6).await?;
    let port = u16::from_be_bytes([place[0], place[1]]);
    let address = Ipv4Addr::new(place[2], place[3], place[4], place[5]);
    head::until_zero(client, LONGEST).await?;
    let destination = match address.octets() {
        // In SOCKS4a a name follows.
        [0, 0, 0, 1..=255] => {
            let name = head::until_zero(client, LONGEST).await?;
            let name = String::from_utf8(name).ok();
            name.and_then(|name| Destination::of(&name, port).ok())
                .ok_or(Error::Client("an invalid host name"))?
        }
        _ => Destination::Address(SocketAddr::new(address.into(), port)),
    };
    match command {
        CONNECT => Ok(destination),
        _ => Err(Error::Unsupported("a SOCKS4 command other than CONNECT")),
    }
}

/// Answers the client with the outcome.
pub(crate) async fn answer(
    client: &mut (impl AsyncWrite + Unpin),
    outcome: Result<(), &Refusal>,
) -> Result<(), Error> {
    let code = match outcome {
        Ok(()) => 90,
        Err(_) => 91,
    };
    let answer = [0, code, 0, 0, 0, 0, 0, 0];
    client.write_all(&answer).await.map_err(Error::client)
}
