//! TLS 1.2 and 1.3 as a transport: it takes connections on, as stunnel and hitch do, and it
//! dials servers. The protocol is rustls's.
//!
//! # Which cryptography
//!
//! rustls leaves it to a provider. Here that is ring: it is reviewed, constant in time also for
//! RSA, and builds for wasm32 with nothing but `clang`. What else there is was measured in
//! wasmtime, on one core of an AMD EPYC (handshakes are the server's share):
//!
//! | | ring | RustCrypto |
//! |---|---|---|
//! | full handshake, P-256 | 0.40 ms | 0.84 ms |
//! | resumed | 0.18 ms | 0.21 ms |
//! | full handshake, RSA-2048 | 13 ms | 8.5 ms |
//! | ChaCha20-Poly1305 | 300 MB/s | 310 MB/s |
//! | AES-128-GCM | 47 MB/s | 62 MB/s |
//!
//! The provider of RustCrypto crates calls itself not fit for production. So this crate is a
//! workspace of its own, since the one around it has a stand-in of that name. Two things follow:
//!
//! - the server's order of ciphers counts, and has ChaCha20-Poly1305 first: a module has no AES
//!   instructions;
//! - keys should be of P-256, P-384 or Ed25519; one of RSA works, with a warning.
//!
//! Where the host grants its ciphers (`host-crypto`, `wit/crypto.wit`), records of TLS 1.3 of 512 bytes
//! and more are encrypted by it; what is smaller, TLS 1.2, and all in a host that grants none are
//! ring's in the module. The bar for that was twice the throughput. CPU seconds of the whole of `watm
//! listen` for one GB that came in, in records of 16 KiB (256 MiB, the better of two runs beside other
//! work):
//!
//! | | ring in the module | the host's ciphers |
//! |---|---|---|
//! | AES-128-GCM | 21.3 | 2.0 |
//! | ChaCha20-Poly1305 | 3.7 | 1.9 |
//!
//! # Which key exchange
//!
//! X25519MLKEM768 where the other end has it, then X25519, P-256 and P-384: a recording of today cannot be
//! read with a quantum computer of tomorrow. A client's order counts. ML-KEM is that of the crate `ml-kem`,
//! since ring has none; it makes the module 36 KB larger. Milliseconds of CPU for a handshake of `watm serve`
//! with P-256, with the connection to the application and all (600 one after the other, beside other work on two
//! cores; the clients are OpenSSL 3.0 and 4.0):
//!
//! | | before | X25519 | X25519MLKEM768 |
//! |---|---|---|---|
//! | component | 1.90 | 1.25 | 1.53 |
//! | module for WATER | 2.33 | 2.30 | 2.32 |
//!
//! An open connection of the component takes 13 KiB with either; an instance of the module for WATER takes
//! 228 KiB with X25519 and 269 with ML-KEM.
//!
//! # What it costs beside others
//!
//! `make bench-tls` puts `watm serve` with this module, hitch 1.7, nginx 1.22 and haproxy 2.6 before one echo of HTTP bodies: P-256,
//! TLS 1.3, ChaCha20-Poly1305, 500 connections, and a connection for each request in the last line. Requests
//! for each second of the server's own processor, and requests a second, each as a share of hitch's (medians of
//! three rounds of 3 s; two cores of an AMD EPYC, of which one worker has one and the load the other; commit 02c36a5):
//!
//! | | 1 worker | nginx | haproxy | 2 workers | 1 worker, a second | 2 workers, a second |
//! |---|---|---|---|---|---|---|
//! | 10 bytes | 0.85 | 0.99 | 0.91 | 0.88 | 0.90 | 0.91 |
//! | 100 bytes | 0.88 | 1.06 | 0.86 | 0.92 | 0.96 | 0.97 |
//! | 1000 bytes | 0.91 | 1.10 | 0.93 | 0.91 | 0.95 | 0.92 |
//! | 10000 bytes | 0.76 | 1.19 | 1.09 | 0.78 | 0.81 | 0.88 |
//! | handshakes | 0.75 | 0.97 | 0.85 | 0.65 | 0.83 | 0.79 |
//!
//! Of a handshake's 0.73 ms, 0.40 ms are ring's in the module. With 10000 bytes it is a copy into the module and one out of it
//! for each direction. wrk resumes its sessions on new connections: a second worker that did not know the tickets of
//! the first cost 0.82 of the handshakes for each second, until workers began with one secret (commit 60a57d6).
//!
//! With a worker on each of two cores the load and the echo would want a core's worth too. So the last part of
//! `make bench-tls` gives each worker a quarter of one core (control groups), and wrk and the echo the rest. Requests
//! a second of two workers beside one, each with fifty connections (medians of two rounds of 3 s; all used 90 to 104 %
//! of what they were given; `tests/tls/bench --workers "" --servers watm,hitch --rounds 2 --seconds 3`):
//!
//! | | here | hitch |
//! |---|---|---|
//! | 10 bytes | 1.86 | 1.84 |
//! | 100 bytes | 1.85 | 2.10 |
//! | 1000 bytes | 2.10 | 1.89 |
//! | 10000 bytes | 2.25 | 1.98 |
//! | handshakes | 2.08 | 1.66 |
//!
//! More than 2 is what one worker on one core shares with the load there. Other things ran on the machine meanwhile.
//!
//! # The configuration
//!
//! Either PEM alone: a private key with its chain is the one certificate that is served, and
//! certificates without a key are the roots that a dialled server has to show. Or JSON, all
//! fields of which may be left out; PEM is text in it:
//!
//! ```json
//! {
//!   "certificates": [{"chain": "<PEM>", "key": "<PEM>", "ocsp": "<base64>", "names": ["example.com", "*.example.com"]}],
//!   "no-match": "default",
//!   "alpn": ["h2", "http/1.1"],
//!   "versions": ["1.2", "1.3"],
//!   "ciphers": ["TLS13_CHACHA20_POLY1305_SHA256"],
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
//! - `certificates`: a client gets the first whose names have what it asks for, exactly or, after
//!   those, by a wildcard for one label, and whose signatures it can verify: an ECDSA and an RSA
//!   certificate may have the same names. The names are the certificate's own unless they are given. `no-match` says what else it gets: the first of all (`default`), or the alert
//!   `unrecognized_name` (`abort`).
//!   `host-key` in the place of `key` names a private key that stays with the host, which signs with
//!   it (`wit/signing.wit`): nothing that is in the module's memory can pass as the server once the
//!   module has ended, and an RSA key costs what it costs outside. The host is given it as
//!   `--key NAME=FILE`. `ocsp` is what the issuer says of the certificate (a response of OCSP in
//!   DER), for clients that ask, as long as it is valid; whoever renews it reconfigures. One that is not
//!   for the certificate, or does not say that it is good until some time, is refused.
//! - `clients`: whether clients show a certificate (`none`, `optional`, `required`). It has to be
//!   good under `roots`, and be one that `allow` has, if that is there: `cn:`, `dns:`, `uri:`,
//!   `email:` with `*` for a part of a name or path, or `spki:sha256:<base64>` for the key. A pin of
//!   a key needs no root. With `crls` a client is refused that is revoked, and so is one that no
//!   list says anything of, up to the root; `"stale-crls": "accept"` has lists count that are older than
//!   they are to be. Pins of keys are not looked up in them.
//! - `tickets`: sessions are resumed by tickets alone. Their keys follow from a secret of at least
//!   32 bytes and the time, so that whoever has the same secret resumes them: name one for several
//!   machines. Without it one is made at the start, which the other workers of `watm serve` and the
//!   next generation of a server take over. `hours` is how long a key encrypts; it decrypts for as long again. `false`: none. A
//!   session whose client the rules of `clients` would not let in now is not resumed: the client has a full
//!   handshake, and can show another certificate. There is no data before the handshake is over (0-RTT):
//!   what a client sends of it is skipped, up to 16 KiB.
//! - `limits`, in seconds. A connection that idles or lasts too long is told so by an alert.
//! - `decoy`: a client that does not speak TLS, or that fails before it was answered, is a flow of
//!   its raw bytes; one without the certificate that it should have, one of what it says. Both
//!   have the attribute `decoy`, with the reason, and it is for the host to take them elsewhere.
//! - `proxy-in`: clients come by somebody who says first who they are; the fields are those of the
//!   transport `proxy-protocol`.
//! - `proxy-out`: the application is told who a connection is from by a header before its data, of
//!   version 2 with what is known of TLS. TLVs that came by `proxy-in` go on as they came, but for those
//!   of the sender's own TLS.
//! - `server`: what is dialled, and how it has to prove that it is that. `name` is what it is asked
//!   for and `verify` what its certificate has to have, both the destination's name by default. A
//!   pin alone needs no root and no name.
//!
//! Reconfiguring is how certificates are renewed: connections that are open go on, and a
//! configuration that cannot be used changes nothing.
//!
//! # What ends a connection
//!
//! `close_notify` is the end of one direction; the other goes on. A connection that ends without
//! it may have been cut short: the application reads what came, and then an error in place of the end.

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

pub use codec::TlsCodec;
pub use transport::Tls;

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Tls>, signing);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Tls>);
