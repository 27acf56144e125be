//! The PROXY protocol (HAProxy's `proxy-protocol.txt`, revision of 2026-04-27) as a transport.
//!
//! Whoever passes a connection on says first who it is from: a line of text in version 1, a
//! binary header in version 2. Accepting, the transport takes that off, tells the application
//! as the flow's source and destination, and then copies. Dialling, it puts a header before
//! what the application writes.
//!
//! A header is believed, so who may send one is configured, and nobody may by default. There is
//! no guessing whether there is a header: a connection without one is reset.
//!
//! [`parse`] is for anybody: it takes bytes as they come, allocates nothing, and says what is
//! wrong.

mod codec;
mod config;
mod header;
mod parse;
mod refused;
mod sources;
mod tlv;
mod v1;
mod v2;
mod write;

pub use codec::{ProxyCodec, ProxyProtocol};
pub use header::{Addresses, Header, Protocol, Proxied};
pub use parse::{LONGEST, Parsed, Rules, parse};
pub use refused::Refused;
pub use tlv::{Ssl, Tlv, Tlvs};
pub use write::{write_v1, write_v2};

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<ProxyProtocol>);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<ProxyProtocol>);
