//! The wire format of SOCKS5 (RFC 1928, RFC 1929), without input and output. `watm-socks5` uses it in modules, and
//! `watm-socks` in the proxies of the host.

mod address;
mod datagram;
mod messages;
mod parse;
mod reply;
mod users;

pub use address::{Address, Host};
pub use datagram::{Unfit, head, split};
pub use messages::{
    Request, credentials, methods, request, write_credentials, write_methods, write_request,
};
pub use parse::{Unread, Wrong};
pub use reply::Reply;
pub use users::same;

/// The version, in the first byte of each message but those of RFC 1929.
pub const VERSION: u8 = 5;

/// The version of RFC 1929's messages.
pub const USERS_VERSION: u8 = 1;

/// The method without authentication.
pub const NO_AUTHENTICATION: u8 = 0;

/// The method with a user and a password (RFC 1929).
pub const USER_AND_PASSWORD: u8 = 2;

/// The answer that none of the offered methods is acceptable.
pub const NOTHING_ACCEPTABLE: u8 = 0xff;

/// The command to connect to a destination.
pub const CONNECT: u8 = 1;

/// The command to wait for a connection.
pub const BIND: u8 = 2;

/// The command to relay datagrams.
pub const ASSOCIATE: u8 = 3;
