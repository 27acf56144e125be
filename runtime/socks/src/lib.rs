//! Local proxies in front of anything that can dial.
//!
//! Programs that know nothing of transports know proxies. [`Proxy`] speaks SOCKS5 (RFC 1928,
//! CONNECT and UDP ASSOCIATE, with RFC 1929 for users), SOCKS4a, and HTTP CONNECT with a client
//! that somebody else accepted, and has a [`Dial`] make the connections; [`forward`] has one
//! destination in the place of the client's, [`arguments`] a dialer for each client, and [`reverse`]
//! a destination here for what the other end opens. [`Bypass`] lists what the host connects to by
//! itself, and [`Resolver`] says who knows the addresses of names.
//!
//! # One client
//!
//! 1. It says what it wants, within [`Limits::handshake`] and the sizes that the protocols have.
//! 2. The [`Dial`] connects. Why it did not is said in the protocol's own words: not allowed,
//!    refused, unreachable and timed out are four different answers.
//! 3. Bytes pass both ways until both have ended. A failure at one side resets the other, so that
//!    what is cut short does not look whole.
//!
//! Datagrams of a client have a flow for each destination, of which there are
//! [`Limits::flows`] at most; the one that was used last is kept.
//!
//! The protocols are read by this crate itself, but for HTTP's head (`httparse`): they are a few
//! bytes, and the crates that have them connect and bind by themselves, without bounds.

pub mod arguments;
mod association;
mod bypass;
mod counters;
mod destination;
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
pub use destination::Destination;
pub use dial::{Carried, Datagrams, Dial, Refusal};
pub use direct::Direct;
pub use error::Error;
pub use limits::Limits;
pub use proxy::Proxy;
pub use resolver::{Resolver, Resolving, Servers};
pub use users::Users;
