//! What a server or a client is told.
//!
//! The configuration is JSON, with the names that the configurations of other implementations
//! have, so that a `config.json` of theirs is one too:
//!
//! - `method`: such as `2022-blake3-aes-128-gcm` or `chacha20-ietf-poly1305`.
//! - `password`: a password, or the key in base64 for the methods that begin with `2022-`. A
//!   client that is one of several users has the server's key and its own, with a `:` between
//!   them.
//! - `users`: for a server with `2022-…-gcm`, a list of `{"name": …, "password": …}`, each with a
//!   key of its own. A flow's peer is the name.
//! - `server` and `server_port`: where the server is, for a client. Of a list, the first. A server
//!   listens where its host says.
//! - `target`: `host:port`, where a connection goes that is dialled without a destination.
//! - `mode`: `tcp_and_udp`, which is the default, `tcp_only` or `udp_only`.
//! - `udp_idle_timeout`, or `udp_timeout`: seconds after which a flow of datagrams ends in which
//!   nothing moves, 300 by default, at least 60.
//! - `prefix`: what the salt of a client's streams begins with, at most 8 characters from U+0000
//!   to U+00FF.
//! - `segmented_header`: `true` if the beginning of a request of SIP022 may come in pieces, as it
//!   does in another transport's stream. A stranger can then tell how long it is.
//! - `gfw_report_compat`: `insecure` for the wire format of gfw-report's patch, which gives up
//!   what the cipher is for; methods of SIP004, streams alone.
//!
//! The other fields of shadowsocks-libev and shadowsocks-rust are of two kinds. Those that tune a
//! program, such as `timeout`, `fast_open` or `locals`, have no effect, and a warning says so. Those
//! that limit who may connect, or where and how traffic leaves, such as `acl` or `outbound_fwmark`,
//! are refused: without them traffic would go where it was not to go. Unknown fields are refused
//! too.
//!
//! A URL `ss://…` (SIP002) and a list of servers, which is a document of SIP008 if it has a
//! `version`, are configurations too. The first server that is not `disabled` is taken. In a
//! document of SIP008 unknown fields have no effect, and a warning names them.

mod json;
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

/// After how long without traffic a flow of datagrams ends, by default: what other
/// implementations do.
pub(crate) const DEFAULT_UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// What the configuration says.
pub(crate) struct Config {
    pub method: Method,
    /// A server's; or a client's, from the server's to its own.
    pub keys: Vec<Key>,
    /// As they are written, for a URL.
    pub password: String,
    /// Sorted by the names of their keys.
    pub users: Vec<User>,
    pub server: Option<Destination>,
    pub target: Option<Destination>,
    pub mode: Mode,
    pub udp_idle_timeout: Duration,
    pub prefix: Vec<u8>,
    pub segmented_header: bool,
    pub insecure: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Somebody with a key.
pub(crate) struct User {
    pub name: String,
    pub key: Key,
    /// The key as it is written.
    pub password: String,
    /// How requests call it.
    pub id: [u8; 16],
}

/// What is carried.
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
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("method", &self.method)
            .field("server", &self.server)
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Read a configuration, in any of the formats.
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let text = std::str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        // Some editors begin a file with a byte order mark.
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

    /// The key that sessions are made with: a client's own, if it has one.
    pub fn last_key(&self) -> &Key {
        self.keys.last().unwrap_or(&self.keys[0])
    }

    /// Whose key has this name.
    pub fn user(&self, id: &[u8; 16]) -> Option<&User> {
        self.user_index(id).map(|index| &self.users[index])
    }

    /// The place of whose key has this name.
    pub fn user_index(&self, id: &[u8; 16]) -> Option<usize> {
        self.users.binary_search_by(|user| user.id.cmp(id)).ok()
    }

    /// What encrypts a datagram's header with this key.
    pub fn header(&self, key: &Key) -> Option<BlockCipher> {
        self.method.has_headers().then(|| BlockCipher::new(key))
    }

    /// A URL for each user.
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

/// The keys that a password stands for; an error is for people.
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
            "{method} knows no users, so there is one key and no ':'; {}",
            wanted(method)
        ));
    }
    if parts.len() > MOST_KEYS {
        return Err(format!("more than {MOST_KEYS} keys with ':' between them"));
    }
    parts.iter().map(|part| key(method, part)).collect()
}

/// Keys that a request may go through: servers that pass it on, and its own.
const MOST_KEYS: usize = 8;

/// One key in base64.
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
