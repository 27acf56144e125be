//! Reads the heads of SOCKS requests, and not one byte beyond them. Used by `arguments`, `proxy`,
//! `socks4` and `socks5`.

use tokio::io::{AsyncRead, AsyncReadExt};
use watm_socks_wire::Unread;

use crate::Error;

/// Reads the next byte.
pub(crate) async fn byte(client: &mut (impl AsyncRead + Unpin)) -> Result<u8, Error> {
    client.read_u8().await.map_err(Error::client)
}

/// Reads `count` bytes.
pub(crate) async fn bytes(
    client: &mut (impl AsyncRead + Unpin),
    count: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; count];
    client.read_exact(&mut bytes).await.map_err(Error::client)?;
    Ok(bytes)
}

/// Reads a message that begins with `begun`, until `parse` lacks nothing or refuses it.
pub(crate) async fn message<T>(
    client: &mut (impl AsyncRead + Unpin),
    begun: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, Unread>,
) -> Result<Vec<u8>, Error> {
    let mut message = begun.to_vec();
    loop {
        let missing = match parse(&message) {
            Err(Unread::Short(missing)) => missing,
            _ => return Ok(message),
        };
        message.extend(bytes(client, missing).await?);
    }
}

/// Reads up to a zero byte, which is not returned. Fails beyond `most` bytes.
pub(crate) async fn until_zero(
    client: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> Result<Vec<u8>, Error> {
    let mut found = Vec::new();
    loop {
        match byte(client).await? {
            0 => return Ok(found),
            _ if found.len() == most => return Err(Error::Client("an unterminated host name")),
            byte => found.push(byte),
        }
    }
}
