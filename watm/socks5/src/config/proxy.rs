//! The proxy of a client: a URL in the configuration.

use percent_encoding::percent_decode_str;
use watm_core::{ConfigError, Destination};

use super::{MOST_BYTES, User, field};

/// A proxy, and the user that the client is there.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub protocol: Protocol,
    pub address: Destination,
    pub user: Option<User>,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Socks5,
    Http,
}

impl Proxy {
    /// Parses a URL. `user` is the one of the fields beside it. No error quotes the URL, which may have a password.
    pub fn parse(url: &str, user: Option<User>) -> Result<Proxy, ConfigError> {
        let wrong = |why: &str| field("server", why);
        let (scheme, rest) = url.split_once("://").unwrap_or(("socks5", url));
        // `socks5h` is curl's word for a proxy that resolves names, as here.
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "socks5" | "socks5h" => Protocol::Socks5,
            "http" => Protocol::Http,
            "https" => {
                return Err(wrong(
                    "TLS to a proxy is not supported; put the module tls before this one, and use http://",
                ));
            }
            "socks4" | "socks4a" => {
                return Err(wrong(
                    "SOCKS4 is not supported; expected socks5:// or http://",
                ));
            }
            _ => return Err(wrong("unknown scheme; expected socks5:// or http://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (told, host) = match rest.rsplit_once('@') {
            Some((told, host)) => (Some(told), host),
            None => (None, rest),
        };
        let address = host.parse().map_err(|_| {
            wrong("expected a host and a port at its end, such as example.com:1080 or [2001:db8::1]:1080")
        })?;
        let user = match (told.map(told_user).transpose()?, user) {
            (Some(_), Some(_)) => {
                return Err(field("user", "server has one too; remove one of them"));
            }
            (told, user) => told.or(user),
        };
        if let Some(user) = &user
            && protocol == Protocol::Http
            && user.name.contains(':')
        {
            return Err(field("user", "has a colon, which HTTP cannot express"));
        }
        Ok(Proxy {
            protocol,
            address,
            user,
        })
    }
}

/// Parses `NAME:PASSWORD` of a URL.
fn told_user(text: &str) -> Result<User, ConfigError> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8().ok()?;
        (decoded.len() <= MOST_BYTES).then(|| decoded.into_owned())
    };
    let user = decoded(name).filter(|name| !name.is_empty());
    user.zip(decoded(password))
        .map(|(name, password)| User { name, password })
        .ok_or_else(|| {
            let why = "expected NAME:PASSWORD before the @, percent-encoded UTF-8 of at most 255 bytes each";
            field("server", why)
        })
}
