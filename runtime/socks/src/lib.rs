//! Local proxies in front of anything that can dial. The command `watm` and the Python package use
//! them.
//!
//! Programs that do not support a transport usually support proxies. [`Proxy`] serves SOCKS5
//! (RFC 1928, CONNECT and UDP ASSOCIATE, with RFC 1929 for users), SOCKS4a, and HTTP CONNECT to
//! clients that the program has accepted. A [`Dial`] makes the connections. [`forward`] leads to
//! one fixed destination, [`arguments`] uses a dialer for each client, and [`reverse`] connects
//! flows from the other end to a local destination. [`Bypass`] lists destinations that the host
//! connects to directly, and [`Resolver`] resolves names.
//!
//! # The path of a client
//!
//! 1. The client sends a request, within [`Limits::handshake`] and the sizes of its protocol.
//! 2. The [`Dial`] connects. The protocol reports why it could not: not allowed, refused,
//!    unreachable and timed out are four different answers.
//! 3. Bytes pass both ways until both directions have ended. A failure at one side resets the
//!    other, so that truncated data does not look complete.
//!
//! Datagrams of a client have a flow for each destination, of which there are [`Limits::flows`] at
//! most. A further flow replaces the least recently used.
//!
//! The crate parses the protocols itself, except for the head of HTTP (`httparse`): they are a few
//! bytes long, and crates that implement them also connect and bind, without bounds.

pub mod arguments;
mod association;
mod bypass;
mod counters;
mod dial;
mod direct;
mod error;
pub mod forward;
mod head;
mod http;
mod join;
mod limits;
mod proxy;
mod resolver;
pub mod reverse;
mod socks4;
mod socks5;
mod table;
mod users;

pub use bypass::{Bypass, Bypassing, Either};
pub use counters::{Counter, Counters};
pub use dial::{Carried, Datagrams, Dial, Refusal};
pub use direct::Direct;
pub use error::Error;
pub use join::pump;
pub use limits::Limits;
pub use proxy::Proxy;
pub use resolver::{Resolver, Resolving, Servers};
pub use users::Users;
pub use watm_types::Destination;
