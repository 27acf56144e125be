//! SOCKS5 whose user and password carry arguments, as Tor passes them to pluggable transports
//! (pt-spec, section 3.5). `watm`'s pluggable transports use it.

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::join::join;
use crate::socks5::{self, Authentication, Request};
use crate::{Dial, Error, Limits, Refusal, head};

/// Serves a client until its connection has ended: CONNECT only, with the dialer that `dialer`
/// returns for the client's arguments. The arguments are the user followed by the password. A
/// password of a single zero byte counts as empty, and a client without either has no arguments. An
/// error of `dialer` refuses the client. Dropping the future ends the connection.
pub async fn serve<D: Dial>(
    mut client: TcpStream,
    dialer: impl Fn(&str) -> Result<D, String> + Send,
    limits: &Limits,
) -> Result<(), Error> {
    let mut arguments = Arguments { dialer, made: None };
    let asked = timeout(limits.handshake, request(&mut client, &mut arguments)).await;
    let request = asked.unwrap_or(Err(Error::Slow))?;
    let (Request::Connect(to), Some(dial)) = (request, arguments.made) else {
        socks5::answer(&mut client, Err(&Refusal::NotSupported)).await?;
        return Err(Error::Unsupported("a command other than CONNECT"));
    };
    let dialled = dial.stream(&to).await;
    socks5::answer(&mut client, dialled.as_ref().map(|_| None)).await?;
    match dialled {
        Ok(connection) => join(client, connection, &[]).await,
        Err(why) => Err(Error::Dial { to, why }),
    }
}

async fn request<D, F>(
    client: &mut TcpStream,
    arguments: &mut Arguments<D, F>,
) -> Result<Request, Error>
where
    F: Fn(&str) -> Result<D, String>,
{
    if head::byte(client).await? != socks5::VERSION {
        return Err(Error::Client("not SOCKS5"));
    }
    socks5::request(client, arguments).await
}

/// The maker of dialers, and the dialer it made from the arguments.
struct Arguments<D, F> {
    dialer: F,
    made: Option<D>,
}

impl<D, F: Fn(&str) -> Result<D, String>> Arguments<D, F> {
    fn take(&mut self, text: &[u8]) -> bool {
        let made = std::str::from_utf8(text)
            .map_err(|_| "must be UTF-8".to_owned())
            .and_then(&self.dialer);
        if let Err(why) = &made {
            tracing::debug!(target: "watm::socks", "a client's arguments: {why}");
        }
        self.made = made.ok();
        self.made.is_some()
    }
}

impl<D, F: Fn(&str) -> Result<D, String>> Authentication for Arguments<D, F> {
    fn choose(&mut self, offered: &[u8]) -> Option<u8> {
        if offered.contains(&socks5::USER_AND_PASSWORD) {
            return Some(socks5::USER_AND_PASSWORD);
        }
        let without = offered.contains(&socks5::NO_AUTHENTICATION) && self.take(b"");
        without.then_some(socks5::NO_AUTHENTICATION)
    }

    fn knows(&mut self, name: &[u8], password: &[u8]) -> bool {
        const NONE: &[u8] = &[0];
        match password {
            NONE => self.take(name),
            _ => self.take(&[name, password].concat()),
        }
    }
}
