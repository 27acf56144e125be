//! SOCKS5 as a transport: a server and a client, for streams and for datagrams (RFC 1928, RFC 1929). The client also knows
//! proxies that speak HTTP CONNECT (RFC 9110, section 9.3.6).
//!
//! # The path of a request
//!
//! 1. [`Socks5`] accepts a connection on the listener granted as `listen`. Its [`SocksCodec`] reads the methods, the user
//!    and the request.
//! 2. CONNECT becomes a stream flow to the destination that the client asked for. The client is answered once the
//!    application has taken the flow, or with the code of its refusal. A flow's peer is the user, if there are users.
//! 3. UDP ASSOCIATE becomes an association, if a datagram socket is granted as `listen`. It lives as long as its
//!    connection. Each destination of the client's datagrams is a datagram flow.
//!
//! A client's streams are dialled: the host connects to the proxy in the configuration, and the application waits until the
//! proxy has connected. For each of a client's datagram flows the module makes an association, on a connection of its own.
//!
//! # Datagrams
//!
//! All associations share one socket, and the server tells them apart by the address of the sender. An association belongs
//! to the address of its client, and to the port that the client announced. Without a port, the first datagram from a port
//! that belongs to no other association decides: it belongs to the oldest association of that address without a port.
//! Answers go to that address and port alone. The server drops fragments, and all datagrams of others.
//!
//! A client sends its datagrams to the address that the proxy answered, or if that has no host, to the proxy's own. An
//! answer is for the flow whose association has the address it came from. Proxies with one address for all associations
//! make that ambiguous. Then the address in the header decides, and among flows to names the port, if it is unique.
//!
//! # Swaps
//!
//! The socket belongs to the generation that serves. A swap therefore ends associations, so that clients make new ones, and
//! it ends datagram flows that were dialled. Streams stay.
//!
//! # Bounds
//!
//! A message of a handshake has at most 513 bytes, and the head of an HTTP answer at most 16 KiB. There are at most 4,096
//! associations, 16,384 datagram flows, and 1,024 flows of one association; at most 1 MiB is queued for the network.
//!
//! # Not supported
//!
//! BIND; GSS-API; fragments of datagrams; TLS to a proxy, which another transport adds (`tls` in a chain of modules).

mod about;
mod client;
mod codec;
mod config;
mod datagrams;
mod destination;
mod server;
mod shared;
mod transport;

pub use about::ABOUT;
pub use codec::{SocksCodec, SocksStreams};
pub use config::{FIELDS, USER};
pub use transport::Socks5;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(Socks5);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<SocksStreams>);
