//! Shadowsocks as a transport: a server and a client, for streams and for datagrams.
//!
//! The methods are those of SIP004 with AEAD and those of SIP022, with its extension for users (SIP
//! 2022-2). The module [`config`] describes the configuration.
//!
//! # The path of a request
//!
//! 1. [`Shadowsocks`] accepts a connection, or receives a datagram, on the resource granted as
//!    `listen`. Either may be missing.
//! 2. A connection's [`ShadowsocksCodec`] reads the salt and the destination. The session of a
//!    datagram is identified by its header in SIP022, and by its source address in SIP004.
//! 3. Only authentic, recent and new requests become flows, to the destination that the client
//!    asked for. A flow's peer is the user, if there are users.
//!
//! A client's streams are dialled: the host connects to the server, and the stream begins with the
//! request. A client's datagrams leave through the socket, one session for each flow.
//!
//! # Visible behaviour for strangers
//!
//! None: a connection that does not begin as it must is read to the end, and not answered. The
//! server closes when the client does, or at a random time from 30 to 60 seconds after the accept,
//! whatever and however much arrived. Either way the client sees a FIN, and not a reset.
//! shadowsocks-libev and Outline do the same: the first gives up on silent connections after 30 to
//! 59 seconds, the second on all strangers after 59. A fixed time of its own, or a reset, would
//! identify this server. A SIP022 request whose beginning arrives in pieces counts as a stranger's,
//! unless `segmented_header` says otherwise.
//!
//! Silent connections exclude no other clients: see [`watm_stream::Streams`]. When there are too
//! many, the oldest of the client that has the most is closed, with a FIN too.
//!
//! # Replays
//!
//! Salts of SIP022 are remembered exactly, for one to two minutes, and a request is accepted for
//! half a minute before and after its time. At most 262,144 are remembered a minute; beyond that,
//! new requests are refused. Requests of SIP004 carry no time: the last 131,072 to 262,144 salts
//! are remembered, exactly too, and a request with an older salt can be replayed. Salts that the
//! server has sent are among them, so that its own messages cannot be sent back to it. Datagrams
//! have their own memory: salts in SIP004, and in SIP022 a window of 1984 packets for each session.
//! A salt is remembered once something behind it was authentic. A module that is swapped in knows
//! the salts and windows that its predecessor knew when the module was started, but not those that
//! followed until it serves. The clients of the predecessor continue: their next datagram opens a
//! flow of the new module, in its own session, and answers in the old flows are sent for five
//! seconds more. Dialled datagram flows end with a swap, so that they are dialled anew.
//!
//! This memory belongs to one instance, so that hosts run only one (`watm.alone` in
//! `wit/world.wit`). WATER hosts run one instance for each connection: there the module only
//! recognises replays that are too old.
//!
//! # Bounds
//!
//! A connection holds as much as [`watm_stream::Relay`] holds, and at most one chunk of 64 KiB
//! more. There are at most 16,384 sessions and as many datagram flows, and 1024 destinations of one
//! session; at most 1 MiB is queued for the network. Only holders of a key can create any.
//!
//! # The ciphers
//!
//! ChaCha20-Poly1305 and XChaCha20-Poly1305 are dryoc's, which implements them with WebAssembly's
//! vectors. The others are those of the RustCrypto crates that `shadowsocks-crypto` consists of,
//! used directly: the same code without its other dependencies. If the host grants `crypto`
//! (`wit/crypto.wit`), it runs AES-GCM and ChaCha20-Poly1305 from 128 bytes on; the XChaCha20 and
//! ChaCha8 methods use the module's cipher everywhere. The goal of host ciphers was to double the
//! module's throughput. AES gains four times and more; ChaCha20 does not reach it, but takes a
//! quarter less CPU. The goal without host ciphers was half the throughput of native servers.
//! ChaCha20 reaches it, for about twice the CPU time; AES does not, because WebAssembly has no
//! instructions for it. `make bench-shadowsocks` measured this (commit 9225d69, medians of five
//! rounds), on two cores of an AMD EPYC with other work on them. shadowsocks-rust ran with one
//! thread then, which its default build does not, and the benchmark since gives it more. The less
//! other work there was, the further ahead were native servers: over three runs the module with its
//! own ChaCha20 reached between 53 and 128 % of shadowsocks-rust's throughput.
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
//! In seconds a GB at 16 KiB, ChaCha20-Poly1305 takes 1.0 in dryoc, 2.6 in ring and 3.3 in
//! RustCrypto; AES-128-GCM takes 9.0 in RustCrypto, 20.5 in ring and 21.3 in cryptoxide;
//! AES-256-GCM takes 11.3, 26.5 and 23.0. AES with vectors took 3.7 and 4.4 in a trial. A cipher
//! written here would have no other reviewers, so that this waits for a library.
//!
//! # Not supported
//!
//! Ciphers without authentication; plugins (put one before the port); a SOCKS server, which is the
//! host's task.

mod about;
mod address;
mod cipher;
pub mod config;
mod datagram;
mod method;
mod refused;
mod salts;
mod snapshot;
mod stamp;
mod stream;
mod transport;
mod wall;

pub use about::ABOUT;
pub use method::Method;
pub use stream::{ShadowsocksCodec, ShadowsocksStreams};
pub use transport::Shadowsocks;
pub use wall::set_wall_clock;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(Shadowsocks);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<ShadowsocksStreams>);
