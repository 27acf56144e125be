//! The configuration: JSON, with the fields in [`FIELDS`].

mod json;
mod proxy;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use watm_core::{ConfigError, Destination};
use watm_schema::{Described, Field, HOST_AND_PORT, Kind, fields};
use watm_socks_wire::same;

pub(crate) use proxy::{Protocol, Proxy};

const TEXT: Kind = Kind::Text("a string of 1 to 255 bytes");
const PASSWORD: Kind = Kind::Text("a string of at most 255 bytes");

/// The fields of the whole configuration.
pub const FIELDS: [Described; 7] = [
    (
        Field::new("users", Kind::List("a list")).or_else("none: everybody may use the server"),
        "The [users](#users) of the server. Clients must name one of them, with the password.",
    ),
    (
        Field::new(
            "server",
            Kind::Text(
                "a URL such as `socks5://example.com:1080` or `http://alice:secret@example.com:8080`",
            ),
        ),
        "The proxy, for a client. Without a scheme it is `socks5`. A name and a password in it are percent-encoded.",
    ),
    (
        Field::new("user", TEXT),
        "The name that the client tells the proxy. It is not percent-encoded.",
    ),
    (
        Field::new("password", PASSWORD).or_else("an empty one"),
        "The password of `user`. It is not percent-encoded.",
    ),
    (
        Field::new("target", HOST_AND_PORT),
        "The destination of connections that name none.",
    ),
    (
        Field::new("udp_address", Kind::Text("an address, such as `192.0.2.1`"))
            .or_else("the address of the socket"),
        "The address for datagrams that the server tells its clients. The unspecified address means the one that the \
         client has connected to.",
    ),
    (
        // From a slow answer of a DNS server to a day.
        Field::number("udp_idle_timeout", "seconds", 10, 86_400).or_number(60),
        "The time without traffic before a UDP flow ends.",
    ),
];

/// The fields of one user.
pub const USER: [Described; 2] = [
    (
        Field::new("name", TEXT).required(),
        "The peer of the user's flows.",
    ),
    (
        Field::new("password", TEXT).required(),
        "The user's password.",
    ),
];

static OF_ROOT: [Field; 7] = fields(&FIELDS);
static OF_USER: [Field; 2] = fields(&USER);

/// The most users of a server.
const MOST_USERS: usize = 65_536;

/// The most bytes of a name or a password (RFC 1929).
const MOST_BYTES: usize = 255;

/// A parsed configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub users: Vec<User>,
    pub proxy: Option<Proxy>,
    pub target: Option<Destination>,
    pub udp_address: Option<IpAddr>,
    pub udp_idle: Duration,
}

/// A user with the password. Also the one that a client is.
#[derive(Clone)]
pub(crate) struct User {
    pub name: String,
    pub password: String,
}

/// Writes the name without the password.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("User")
            .field(&self.name)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Parses a configuration; an empty one has no fields.
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let text = std::str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        // Some editors put a byte order mark at the beginning of a file.
        match text.trim_start_matches('\u{feff}').trim() {
            "" => json::parse("{}"),
            text => json::parse(text),
        }
    }

    /// The user with this name and password. The time taken does not depend on the result.
    pub fn user(&self, name: &[u8], password: &[u8]) -> Option<&User> {
        let mut found = None;
        for user in &self.users {
            if same(user.name.as_bytes(), name) & same(user.password.as_bytes(), password) {
                found = Some(user);
            }
        }
        found
    }

    /// The destination of a dial, or an error that says what is missing.
    pub fn target<'a>(
        &'a self,
        destination: Option<&'a Destination>,
    ) -> Result<&'a Destination, String> {
        destination
            .or(self.target.as_ref())
            .ok_or_else(|| "target: missing, and no destination was given".to_owned())
    }

    /// The proxy, or an error that says that it is missing.
    pub fn proxy(&self) -> Result<&Proxy, String> {
        self.proxy
            .as_ref()
            .ok_or_else(|| "server: missing; there is no proxy to connect to".to_owned())
    }
}

fn field(name: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::Field(name.to_owned(), why.into())
}
