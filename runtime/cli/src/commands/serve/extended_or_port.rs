//! Tor's extended port for transports, which accepts the address of each connection's client:
//! <https://spec.torproject.org/ext-orport-spec.html>. `upstream` uses it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The header of the cookie's file.
const COOKIE_HEADER: &[u8; 32] = b"! Extended ORPort Auth Cookie !\x0a";
const COOKIE: usize = 32;
const NONCE: usize = 32;
const HASH: usize = 32;

const SAFE_COOKIE: u8 = 1;
const LAST_TYPE: u8 = 0;

const SERVERS_HASH: &[u8] = b"ExtORPort authentication server-to-client hash";
const CLIENTS_HASH: &[u8] = b"ExtORPort authentication client-to-server hash";

const DONE: u16 = 0;
const USER_ADDRESS: u16 = 1;
const TRANSPORT: u16 = 2;
const OKAY: u16 = 0x1000;

/// The most types of authentication, and messages before an answer, that are read.
const MOST: usize = 32;

/// The time limit for Tor, which is on this machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The extended port's cookie and the transport it is for.
#[derive(Debug, Clone)]
pub(crate) struct ExtendedOrPort {
    pub(crate) cookie: PathBuf,
    /// The name of the transport.
    pub(crate) transport: String,
}

impl ExtendedOrPort {
    /// Announces that this connection belongs to `client`. Reads the cookie each time, since Tor
    /// makes a new one when it starts.
    pub(crate) async fn introduce(
        &self,
        tor: &mut (impl AsyncRead + AsyncWrite + Unpin),
        client: SocketAddr,
    ) -> io::Result<()> {
        let cookie = read_cookie(&self.cookie)?;
        let introducing = async {
            authenticate(tor, &cookie).await?;
            send(tor, USER_ADDRESS, client.to_string().as_bytes()).await?;
            send(tor, TRANSPORT, self.transport.as_bytes()).await?;
            send(tor, DONE, &[]).await?;
            await_answer(tor).await
        };
        match timeout(PATIENCE, introducing).await {
            Ok(result) => result,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Reads the cookie's file of 64 bytes.
fn read_cookie(path: &Path) -> io::Result<[u8; COOKIE]> {
    let content = std::fs::read(path)?;
    let cookie = content.strip_prefix(COOKIE_HEADER);
    cookie
        .and_then(|cookie| cookie.try_into().ok())
        .ok_or_else(|| refused("the cookie file is not valid"))
}

async fn authenticate(
    tor: &mut (impl AsyncRead + AsyncWrite + Unpin),
    cookie: &[u8; COOKIE],
) -> io::Result<()> {
    let mut known = false;
    for place in 0.. {
        match tor.read_u8().await? {
            LAST_TYPE => break,
            _ if place >= MOST => return Err(refused("too many authentication types")),
            kind => known |= kind == SAFE_COOKIE,
        }
    }
    if !known {
        return Err(refused("no supported authentication type"));
    }
    let mut nonce = [0; NONCE];
    let random = SystemRandom::new().fill(&mut nonce);
    random.map_err(|_| refused("the system's random number generator failed"))?;
    tor.write_all(&[SAFE_COOKIE]).await?;
    tor.write_all(&nonce).await?;
    let (mut hash, mut servers) = ([0; HASH], [0; NONCE]);
    tor.read_exact(&mut hash).await?;
    tor.read_exact(&mut servers).await?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, cookie);
    let message = |what: &[u8]| [what, &nonce, &servers].concat();
    hmac::verify(&key, &message(SERVERS_HASH), &hash)
        .map_err(|_| refused("Tor does not know the cookie"))?;
    let own = hmac::sign(&key, &message(CLIENTS_HASH));
    tor.write_all(own.as_ref()).await?;
    match tor.read_u8().await? {
        1 => Ok(()),
        _ => Err(refused("Tor refused the cookie")),
    }
}

async fn send(tor: &mut (impl AsyncWrite + Unpin), command: u16, body: &[u8]) -> io::Result<()> {
    let length = u16::try_from(body.len()).map_err(|_| refused("a name that is too long"))?;
    let mut message = [command.to_be_bytes(), length.to_be_bytes()].concat();
    message.extend(body);
    tor.write_all(&message).await
}

async fn await_answer(tor: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    const DENY: u16 = 0x1001;
    for _ in 0..MOST {
        let command = tor.read_u16().await?;
        let mut body = vec![0; usize::from(tor.read_u16().await?)];
        tor.read_exact(&mut body).await?;
        match command {
            OKAY => return Ok(()),
            DENY => return Err(refused("Tor denied the connection")),
            // A newer message, which may be ignored.
            _ => {}
        }
    }
    Err(refused("Tor did not answer"))
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("Tor's extended port: {reason}"),
    )
}
