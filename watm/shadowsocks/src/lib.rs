//! Shadowsocks as a transport: a server and a client, of streams and of datagrams.
//!
//! The methods are those of SIP004 with AEAD and those of SIP022, with its extension for users
//! (SIP 2022-2). What a configuration says is on the page of [`config`].
//!
//! # The path of a request
//!
//! 1. [`Shadowsocks`] accepts a connection, or receives a datagram, on what is granted as
//!    `listen`. Either may be missing.
//! 2. A connection's [`ShadowsocksCodec`] reads the salt and what says where to go. For a
//!    datagram of SIP022 the header says whose session it is of; for one of SIP004 it is where
//!    it comes from.
//! 3. Only what is authentic, of this time and new becomes a flow, to the destination that the
//!    client asked for. A flow's peer is the user, where there are users.
//!
//! A client's streams are dialled: the host connects to the server, and the request is what is
//! said first. A client's datagrams leave through the socket, a session for each flow.
//!
//! # What strangers see
//!
//! Nothing: whatever does not begin as it must is read to the end, and is not answered. When the
//! time for a request is over, ten seconds after a connection was accepted, it is reset, whatever
//! came and however much. A request of SIP022 whose beginning comes in pieces is a stranger's,
//! unless `segmented_header` says otherwise.
//!
//! # Replays
//!
//! Salts of SIP022 are remembered exactly, for one to two minutes, and a request is taken for
//! half a minute before and after its time. At most 262,144 are remembered a minute; beyond, new
//! requests are refused. Requests of SIP004 say no time: the last 131,072 to 262,144 salts are
//! remembered, exactly too, and one that is older can be replayed. Salts that we have sent are
//! among them, so that nobody can send back to us what we said. Datagrams have a memory of their
//! own: that of SIP004, and in SIP022 a window of 1984 packets for each session. A salt is
//! remembered once something behind it was authentic. A module that is swapped in knows the salts and
//! windows that the one before it knew as it was started, so not those of the moment until it
//! serves. The clients of that one go on: their next datagram begins a flow of the new module's, in
//! a session of its own, and what is answered in the old one's flows is sent for five seconds more.
//! Flows of datagrams that were dialled end with a swap, so that they are dialled anew.
//!
//! # Bounds
//!
//! A connection holds what [`watm_stream::Relay`] holds, and at most one chunk of 64 KiB more.
//! There are at most 16,384 sessions and as many flows of datagrams, and 1024 destinations of one
//! session; what waits for the network is at most 1 MiB. Only who has a key makes any.
//!
//! # The ciphers
//!
//! They are those of the RustCrypto crates that `shadowsocks-crypto` is made of, used directly:
//! the same code without what that brings along. Where the host grants `crypto`
//! (`wit/crypto.wit`), it runs AES-GCM and ChaCha20-Poly1305 from 128 bytes on. That was to stay
//! if it doubles what the module can do, and it does: `make bench-shadowsocks` measured, as
//! seconds of the server's CPU a GB, on two cores of an AMD EPYC that did other things too,
//!
//! | | shadowsocks-rust | the module's cipher (WATER v1) | the host's (component) |
//! |---|---|---|---|
//! | chacha20-ietf-poly1305, up | 1.10 | 4.30 | 1.65 |
//! | the same, down | 1.05 | 4.70 | 1.40 |
//! | aes-256-gcm, up | 0.80 | 13.85 | 1.70 |
//! | the same, down | 1.25 | 14.45 | 1.75 |
//!
//! With its own cipher the module reaches 44 to 64 % of shadowsocks-rust's throughput for
//! ChaCha20 and a fifth for AES, for which WebAssembly has no instructions; with the host's 76 to
//! 193 %. The XChaCha20 and ChaCha8 methods have the module's cipher everywhere.
//!
//! No other library does better in WebAssembly. In seconds a GB at 16 KiB, ChaCha20-Poly1305 takes
//! 3.2 here and 2.6 in ring, AES-128-GCM 9.0 and 20.5, AES-256-GCM 11.3 and 26.5. Ciphers written
//! for vectors of 128 bits took 2.0, 3.7 and 4.4 in a trial; but a cipher of our own is one that
//! nobody else reads, so they wait for a library that has them.
//!
//! # What is not there
//!
//! Ciphers that do not authenticate; plugins (put one before the port); a SOCKS server, which is
//! the host's.

mod address;
mod cipher;
pub mod config;
mod datagram;
mod method;
mod salts;
mod snapshot;
mod stamp;
mod stream;
mod transport;
mod wall;

pub use method::Method;
pub use stream::{ShadowsocksCodec, ShadowsocksStreams};
pub use transport::Shadowsocks;
pub use wall::set_wall_clock;

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(Shadowsocks);

// Of replays, whoever has seen a salt must know.
#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::alone!();

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<ShadowsocksStreams>);
