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
//! Nothing: whatever does not begin as it must is read to the end, and is not answered. The server
//! closes when the client does, or else at a time that it draws for each connection, from 30 to 60
//! seconds after it was accepted, whatever came and however much. Either way the client sees a FIN,
//! and not a reset. shadowsocks-libev and Outline do the same: the first gives up on silent
//! connections after 30 to 59 seconds, the second on all strangers after 59. A single time of our
//! own, or a reset, would name this server. A request of SIP022 whose beginning comes in pieces is
//! a stranger's, unless `segmented_header` says otherwise.
//!
//! Silent connections keep nobody out: see [`watm_stream::Streams`]. When there are too many, the
//! oldest of the client that has the most is closed, with a FIN too.
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
//! All of that is of one instance, so that hosts run one (`watm.alone` in `wit/world.wit`). WATER's
//! have one for each connection: there the module knows no replay but what is not of this time.
//!
//! # Bounds
//!
//! A connection holds what [`watm_stream::Relay`] holds, and at most one chunk of 64 KiB more.
//! There are at most 16,384 sessions and as many flows of datagrams, and 1024 destinations of one
//! session; what waits for the network is at most 1 MiB. Only who has a key makes any.
//!
//! # The ciphers
//!
//! ChaCha20-Poly1305 and XChaCha20-Poly1305 are dryoc's, which has them for WebAssembly's vectors.
//! The others are those of the RustCrypto crates that `shadowsocks-crypto` is made of, used directly:
//! the same code without what that brings along. Where the host grants `crypto`
//! (`wit/crypto.wit`), it runs AES-GCM and ChaCha20-Poly1305 from 128 bytes on; the XChaCha20 and
//! ChaCha8 methods have the module's cipher everywhere. That was to stay if it doubles what the module
//! can do: it does so for AES, which gains four times and more, and not for ChaCha20, which takes a
//! quarter less CPU. Without the host's the module was to reach
//! half of what native servers do. With ChaCha20 it does, for about twice the CPU time; with AES it
//! does not, for which WebAssembly has no instructions. `make bench-shadowsocks` measured (commit
//! 9225d69, medians of five rounds), on two cores of an AMD EPYC that did other things too. shadowsocks-rust
//! had one thread then, which its default build has not, and the benchmark since gives it more. The less
//! these were, the more were native servers ahead: over three runs the module with its own ChaCha20
//! came to between 53 and 128 % of shadowsocks-rust's throughput.
//!
//! | MB/s; seconds of the server's CPU a GB | shadowsocks-rust | shadowsocks-libev | component | the same without `crypto` | WATER v1 |
//! |---|---|---|---|---|---|
//! | chacha20-ietf-poly1305, up | 202; 1.09 | 304; 1.68 | 228; 1.48 | 223; 2.15 | 233; 1.91 |
//! | the same, down | 229; 1.13 | 207; 1.56 | 194; 1.60 | 284; 2.19 | 219; 1.99 |
//! | 2022-blake3-chacha20-poly1305, up | 268; 0.94 | | 340; 1.45 | 266; 1.91 | 302; 2.03 |
//! | the same, down | 225; 1.05 | | 292; 1.99 | 234; 2.38 | 242; 2.15 |
//! | aes-256-gcm, up | 217; 0.82 | 209; 1.52 | 311; 1.17 | 60; 13.09 | 65; 13.36 |
//! | the same, down | 275; 0.70 | 207; 1.45 | 352; 1.41 | 53; 13.79 | 64; 14.22 |
//! | 2022-blake3-aes-128-gcm, up | 249; 0.59 | | 375; 1.05 | 36; 9.80 | 75; 10.16 |
//! | the same, down | 225; 0.78 | | 394; 1.45 | 81; 10.00 | 86; 10.47 |
//! | **round trip of 512 bytes: µs** | | | | | |
//! | chacha20-ietf-poly1305 | 90 | 116 | 133 | 125 | 101 |
//! | 2022-blake3-chacha20-poly1305 | 112 | | 149 | 143 | 109 |
//! | aes-256-gcm | 103 | 63 | 122 | 158 | 124 |
//! | 2022-blake3-aes-128-gcm | 131 | | 145 | 162 | 118 |
//!
//! In seconds a GB at 16 KiB ChaCha20-Poly1305 takes 1.0 in dryoc, 2.6 in ring and 3.3 in RustCrypto;
//! AES-128-GCM takes 9.0 in RustCrypto, 20.5 in ring and 21.3 in cryptoxide, AES-256-GCM 11.3, 26.5
//! and 23.0. AES for vectors took 3.7 and 4.4 in a trial; but a cipher of our own is one that nobody
//! else reads, so that waits for a library that has it.
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
