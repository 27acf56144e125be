//! The configuration of a server or a client. Used throughout the crate.
//!
//! The configuration is JSON with the field names of other implementations, so that their
//! `config.json` is valid too. [`FIELDS`] describes the fields of a server, [`USER`] those of a user.
//!
//! The other fields of shadowsocks-libev and shadowsocks-rust are of two kinds. Fields that tune a
//! program, such as `timeout`, `fast_open` or `locals`, have no effect, and a warning names them.
//! Fields that limit who may connect, or where and how traffic leaves, such as `acl` or
//! `outbound_fwmark`, are refused: ignoring them would let forbidden traffic pass. Unknown fields
//! are refused too.
//!
//! A URL `ss://…` (SIP002) and a list of servers are configurations too. A list with a `version` is
//! a document of SIP008. The first server that is not `disabled` is used. In a document of SIP008
//! unknown fields have no effect, and a warning names them.

mod fields;
mod ignored;
mod json;
mod server;
mod unique;
mod url;
mod value;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use watm_core::{ClientConfig, ConfigError, Destination};

use crate::cipher::{BlockCipher, Key};
use crate::method::Method;

pub use fields::{FIELDS, USER};

/// A parsed configuration.
pub(crate) struct Config {
    pub method: Method,
    /// The key of a server; or the keys of a client, from the server's to its own.
    pub keys: Vec<Key>,
    /// The password as written, for a URL.
    pub password: String,
    /// The users, sorted by the names of their keys.
    pub users: Vec<User>,
    pub server: Option<Destination>,
    pub target: Option<Destination>,
    pub mode: Mode,
    pub udp_idle_timeout: Duration,
    pub prefix: Vec<u8>,
    pub segmented_header: bool,
    pub insecure: bool,
    /// Problems that the user should know.
    pub warnings: Vec<String>,
}

/// A user with a key.
pub(crate) struct User {
    pub name: String,
    pub key: Key,
    /// The key as written.
    pub password: String,
    /// The name of the key in requests.
    pub id: [u8; 16],
}

/// The kinds of flows that are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Both,
    Streams,
    Datagrams,
}

impl Mode {
    pub fn streams(self) -> bool {
        self != Mode::Datagrams
    }

    pub fn datagrams(self) -> bool {
        self != Mode::Streams
    }
}

impl std::fmt::Debug for Config {
    /// Omits the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("method", &self.method)
            .field("server", &self.server)
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Parses a configuration, in any of the formats.
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let text = std::str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        // Some editors put a byte order mark at the beginning of a file.
        let text = text.trim_start_matches('\u{feff}').trim();
        match url::without_scheme(text) {
            Some(rest) => url::parse(rest),
            None => json::parse(text),
        }
    }

    /// The server's key.
    pub fn key(&self) -> &Key {
        &self.keys[0]
    }

    /// The key of sessions: a client's own, if it has one.
    pub fn last_key(&self) -> &Key {
        self.keys.last().unwrap_or(&self.keys[0])
    }

    /// The user whose key has this name.
    pub fn user(&self, id: &[u8; 16]) -> Option<&User> {
        self.user_index(id).map(|index| &self.users[index])
    }

    /// The index of the user whose key has this name.
    pub fn user_index(&self, id: &[u8; 16]) -> Option<usize> {
        self.users.binary_search_by(|user| user.id.cmp(id)).ok()
    }

    /// The cipher of a datagram's header under this key, if the method has headers.
    pub fn header(&self, key: &Key) -> Option<BlockCipher> {
        self.method.has_headers().then(|| BlockCipher::new(key))
    }

    /// Makes a URL for each user.
    pub fn client_configs(&self, public: &Destination) -> Vec<ClientConfig> {
        let one = |peer: Option<&User>| {
            let password = match peer {
                None => self.password.clone(),
                Some(user) => format!("{}:{}", self.password, user.password),
            };
            let name = peer.map_or("shadowsocks", |user| &user.name);
            ClientConfig {
                peer: peer.map(|user| user.name.clone()),
                name: format!("{name}.txt"),
                media_type: "text/plain".to_owned(),
                content: self.url(&password, public, name),
            }
        };
        match self.users.is_empty() {
            true => vec![one(None)],
            false => self.users.iter().map(|user| one(Some(user))).collect(),
        }
    }

    fn url(&self, password: &str, public: &Destination, name: &str) -> String {
        let method = self.method.name();
        let user = match self.method.is_2022() {
            true => format!(
                "{method}:{}",
                utf8_percent_encode(password, NON_ALPHANUMERIC)
            ),
            false => URL_SAFE_NO_PAD.encode(format!("{method}:{password}")),
        };
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        format!("ss://{user}@{public}#{name}\n")
    }
}

/// Parses the keys in a password. The error is text for people.
pub(crate) fn keys(method: Method, password: &str) -> Result<Vec<Key>, String> {
    if password.is_empty() {
        return Err(match method.is_2022() {
            true => format!("empty; {}", wanted(method)),
            false => "empty; expected a password".to_owned(),
        });
    }
    if !method.is_2022() {
        return Ok(vec![Key::from_password(password, method.key_length())]);
    }
    let parts: Vec<&str> = password.split(':').collect();
    if parts.len() > 1 && !method.has_headers() {
        return Err(format!(
            "{method} does not support users, so expected one key without ':'; {}",
            wanted(method)
        ));
    }
    if parts.len() > MOST_KEYS {
        return Err(format!("more than {MOST_KEYS} keys with ':' between them"));
    }
    parts.iter().map(|part| key(method, part)).collect()
}

/// The most keys of a request: those of servers that forward it, and its own.
const MOST_KEYS: usize = 8;

/// Parses one key in base64.
pub(crate) fn key(method: Method, text: &str) -> Result<Key, String> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| format!("not base64; {}", wanted(method)))?;
    match bytes.len() == method.key_length() {
        true => Ok(Key::new(&bytes).expect("as long as a key")),
        false => Err(format!(
            "{} bytes in base64; {}",
            bytes.len(),
            wanted(method)
        )),
    }
}

fn wanted(method: Method) -> String {
    let length = method.key_length();
    format!(
        "{method} has a key of {length} bytes, {} characters of base64, as 'openssl rand -base64 {length}' makes it",
        length.div_ceil(3) * 4
    )
}
