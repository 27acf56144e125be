//! TLS 1.2 and 1.3 as a transport: it accepts connections, as stunnel and hitch do, and it dials servers. rustls
//! implements the protocol.
//!
//! # Cryptography
//!
//! rustls leaves cryptography to a provider. Here that is ring: it is reviewed, constant in time also for RSA, and
//! builds for wasm32 with only `clang`. The alternative was measured in wasmtime, on one core of an AMD EPYC
//! (handshakes are the server's share):
//!
//! | | ring | RustCrypto |
//! |---|---|---|
//! | full handshake, P-256 | 0.40 ms | 0.84 ms |
//! | resumed | 0.18 ms | 0.21 ms |
//! | full handshake, RSA-2048 | 13 ms | 8.5 ms |
//! | ChaCha20-Poly1305 | 300 MB/s | 310 MB/s |
//! | AES-128-GCM | 47 MB/s | 62 MB/s |
//!
//! The provider of RustCrypto crates describes itself as not fit for production. This crate is therefore its own
//! workspace, since the one around it has a stand-in named `ring`. Two things follow:
//!
//! - the server's order of ciphers counts, and has ChaCha20-Poly1305 first: a module has no AES instructions;
//! - keys should be P-256, P-384 or Ed25519 keys; an RSA key works, with a warning.
//!
//! A host that grants its ciphers (`host-crypto`, `wit/crypto.wit`) encrypts records of TLS 1.3 of 512 bytes and more.
//! Smaller records, TLS 1.2, and everything in a host that grants none use ring in the module. The goal was twice the
//! throughput. CPU seconds of the whole of `watm listen` for one GB received, in records of 16 KiB (256 MiB, the better
//! of two runs beside other work):
//!
//! | | ring in the module | the host's ciphers |
//! |---|---|---|
//! | AES-128-GCM | 21.3 | 2.0 |
//! | ChaCha20-Poly1305 | 3.7 | 1.9 |
//!
//! # Key exchange
//!
//! X25519MLKEM768 is preferred, then X25519, P-256 and P-384: a quantum computer of tomorrow cannot read a recording of
//! today. The client's order counts. ML-KEM comes from the crate `ml-kem`, since ring has none; it makes the module 36
//! KB larger. Milliseconds of CPU for a handshake of `watm serve` with P-256, including the connection to the
//! application (600 one after the other, beside other work on two cores; the clients are OpenSSL 3.0 and 4.0):
//!
//! | | before | X25519 | X25519MLKEM768 |
//! |---|---|---|---|
//! | component | 1.90 | 1.25 | 1.53 |
//! | module for WATER | 2.33 | 2.30 | 2.32 |
//!
//! An open connection of the component takes 13 KiB with either; an instance of the module for WATER takes
//! 228 KiB with X25519 and 269 with ML-KEM.
//!
//! # Costs beside other servers
//!
//! `make bench-tls` puts `watm serve` with this module, hitch 1.7, nginx 1.22 and haproxy 2.6 before one echo of HTTP
//! bodies: P-256, TLS 1.3, ChaCha20-Poly1305, 500 connections, and a connection for each request in the last line. The
//! columns are requests per second of the server's own processor, and requests per second, each as a share of hitch's
//! (medians of three rounds of 3 s; two cores of an AMD EPYC, of which one worker has one and the load the other;
//! commit 02c36a5):
//!
//! | | 1 worker | nginx | haproxy | 2 workers | 1 worker, a second | 2 workers, a second |
//! |---|---|---|---|---|---|---|
//! | 10 bytes | 0.85 | 0.99 | 0.91 | 0.88 | 0.90 | 0.91 |
//! | 100 bytes | 0.88 | 1.06 | 0.86 | 0.92 | 0.96 | 0.97 |
//! | 1000 bytes | 0.91 | 1.10 | 0.93 | 0.91 | 0.95 | 0.92 |
//! | 10000 bytes | 0.76 | 1.19 | 1.09 | 0.78 | 0.81 | 0.88 |
//! | handshakes | 0.75 | 0.97 | 0.85 | 0.65 | 0.83 | 0.79 |
//!
//! ring in the module takes 0.40 ms of a handshake's 0.73 ms. With 10000 bytes the difference is one copy into the
//! module and one out of it for each direction. wrk resumes its sessions on new connections: a second worker that did
//! not know the tickets of the first cost 0.82 of the handshakes per second, until workers began with one secret
//! (commit 60a57d6).
//!
//! With a worker on each of two cores, the load and the echo would need a core too. The last part of `make bench-tls`
//! therefore gives each worker a quarter of one core (control groups), and wrk and the echo the rest. Requests per
//! second of two workers relative to one, each with fifty connections (medians of two rounds of 3 s; all used 90 to 104
//! % of their share; `tests/tls/bench --workers "" --servers watm,hitch --rounds 2 --seconds 3`):
//!
//! | | here | hitch |
//! |---|---|---|
//! | 10 bytes | 1.86 | 1.84 |
//! | 100 bytes | 1.85 | 2.10 |
//! | 1000 bytes | 2.10 | 1.89 |
//! | 10000 bytes | 2.25 | 1.98 |
//! | handshakes | 2.08 | 1.66 |
//!
//! Values above 2 come from what one worker on one core shares with the load there. Other things ran on the machine
//! meanwhile.
//!
//! # The configuration
//!
//! The configuration is PEM or JSON. PEM only: a private key with its chain is the served certificate, and certificates
//! without a key are the roots of dialled servers. In JSON all fields are optional; PEM is text in it:
//!
//! ```json
//! {
//!   "certificates": [{"chain": "<PEM>", "key": "<PEM>", "ocsp": "<base64>", "names": ["example.com", "*.example.com"]}],
//!   "no-match": "default",
//!   "alpn": ["h2", "http/1.1"],
//!   "versions": ["1.2", "1.3"],
//!   "ciphers": ["TLS_CHACHA20_POLY1305_SHA256"],
//!   "clients": {"certificates": "required", "roots": "<PEM>", "crls": "<PEM>", "allow": ["dns:*.example.com"]},
//!   "tickets": {"secret": "<base64>", "hours": 12},
//!   "limits": {"handshake": 10, "idle": 300, "lifetime": 86400},
//!   "decoy": false,
//!   "proxy-in": {"from": "10.0.0.0/8"},
//!   "proxy-out": {"version": "v2", "certificate": false, "unique-id": true},
//!   "server": {
//!     "remote": "example.com:443", "name": "example.com", "verify": "example.com",
//!     "roots": "<PEM>", "pins": ["sha256:<base64>"], "alpn": ["h2"], "chain": "<PEM>", "key": "<PEM>"
//!   }
//! }
//! ```
//!
//! - `certificates`: a client gets the first certificate whose names match the requested one, exactly or else by a
//!   wildcard for one label, and whose signatures it can verify: an ECDSA and an RSA certificate may have the same
//!   names. The names come from the certificate unless they are given. `no-match` says what other clients get: the
//!   first of all (`default`), or the alert `unrecognized_name` (`abort`). `host-key` instead of `key` names a private
//!   key that stays in the host, which signs with it (`wit/signing.wit`): nothing in the module's memory can pass as
//!   the server once the module has ended, and an RSA key costs as much as outside a module. The host gets it as `--key
//!   NAME=FILE`. `ocsp` is the issuer's OCSP response for the certificate (in DER), for clients that ask, while it is
//!   valid; reconfigure to renew it. A response for another certificate, or without a good status until some time, is
//!   refused.
//! - `clients`: the request for client certificates (`none`, `optional`, `required`). A certificate must be valid under
//!   `roots`, and match an entry of `allow`, if that is present: `cn:`, `dns:`, `uri:`, `email:` with `*` for a part of
//!   a name or path, or `spki:sha256:<base64>` for the key. A pinned key needs no root. With `crls`, a revoked client
//!   is refused, and so is one that no list covers, up to the root. `"stale-crls": "accept"` accepts lists past their
//!   next update. Pinned keys are not looked up in them.
//! - `tickets`: sessions are resumed by tickets only. Their keys follow from a secret of at least 32 bytes and the
//!   time, so that every server with the same secret resumes them: configure one for several machines. Without it one
//!   is made at the start, which the other workers of `watm serve` and the next generation of a server take over.
//!   `hours` is the time for which a key encrypts; it decrypts for as long again. `false`: no tickets. A session is not
//!   resumed if the rules of `clients` would refuse its client now: the client has a full handshake, and can present
//!   another certificate. There is no data before the end of the handshake (0-RTT): a client's early data is skipped,
//!   up to 16 KiB.
//! - `limits`, in seconds. A connection that idles or lasts too long ends with an alert.
//! - `decoy`: a client that does not speak TLS, or that fails before it was answered, becomes a flow of its raw bytes.
//!   A client without the required certificate becomes a flow of its decrypted data. Both have the attribute `decoy`,
//!   with the reason, and the host takes them elsewhere.
//! - `proxy-in`: clients come through a proxy that sends a PROXY header; the fields are those of the transport
//!   `proxy-protocol`.
//! - `proxy-out`: a PROXY header before a connection's data names the client to the application, in version 2 with the
//!   facts of TLS. TLVs of `proxy-in` are forwarded as received, except for those of the sender's own TLS.
//! - `server`: the dialled server, and how it must prove its identity. `name` is the requested name and `verify` the
//!   name that its certificate must have; both default to the destination's name. A pin needs neither a root nor a
//!   name.
//!
//! Certificates are renewed by reconfiguring: open connections go on, and an unusable configuration changes nothing.
//!
//! # The end of a connection
//!
//! `close_notify` ends one direction; the other goes on. A connection that ends without it may be truncated: the
//! application reads the received data, and then an error instead of the end.

mod about;
mod accepted;
mod certificates;
mod clients;
mod codec;
mod config;
mod decoy;
mod dialled;
mod facts;
mod failure;
mod groups;
mod keys;
mod names;
mod proxy;
mod records;
mod servers;
mod session;
mod signatures;
mod staple;
mod ticketed;
mod tickets;
mod transport;

pub use about::ABOUT;
pub use codec::TlsCodec;
pub use config::fields;
pub use transport::Tls;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Tls>, signing);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Tls>);
