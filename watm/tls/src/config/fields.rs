//! The fields of the JSON. `json` has the same as types, and its tests compare both.

use watm_schema::{Described, Field, HOST_AND_PORT, Kind, fields};

const PEM: Kind = Kind::Text("PEM");
const PROTOCOLS: Kind = Kind::List("a list of at most 32 protocols, such as `h2`");
const HOST_KEY: Kind = Kind::Text("the name of a key in the host");

/// The largest limit in seconds: ten years.
const LONGEST: u64 = 10 * 365 * 86400;

/// The fields of the whole configuration.
pub const ROOT: [Described; 12] = [
    (
        Field::new(
            "certificates",
            Kind::List("a list, each with the fields of [`certificates`](#certificates)"),
        )
        .or_else("none: the module dials alone"),
        "The certificates that the module serves.",
    ),
    (
        Field::choice("no-match", &["default", "abort"]).or("default"),
        "The answer to a client that asks for another name: the first certificate, or the alert \
         `unrecognized_name`.",
    ),
    (
        Field::new("alpn", PROTOCOLS),
        "The protocols that the server offers.",
    ),
    (
        Field::new("versions", Kind::List("a list of `1.2`, `1.3` or both")).or_else("both"),
        "The versions of TLS.",
    ),
    (
        Field::new("ciphers", Kind::List("a list of names of cipher suites"))
            .or_else("all, ChaCha20-Poly1305 first"),
        "Cipher suites in order of preference.",
    ),
    (
        Field::new("clients", Kind::Table("clients")),
        "Client certificates.",
    ),
    (
        Field::new(
            "tickets",
            Kind::Any("true, false or the fields of [`tickets`](#tickets)"),
        )
        .or("true"),
        "Session tickets.",
    ),
    (
        Field::new("limits", Kind::Table("limits")).or_else("the defaults of its fields"),
        "Time limits.",
    ),
    (
        Field::switch("decoy"),
        "Clients that do not belong here become flows with the attribute `decoy`.",
    ),
    (
        Field::new(
            "proxy-in",
            Kind::Any("the fields of [`proxy-protocol`](proxy-protocol.md#configuration)"),
        ),
        "Clients arrive through a proxy.",
    ),
    (
        Field::new("proxy-out", Kind::Table("proxy-out")),
        "The PROXY header for the application.",
    ),
    (
        Field::new("server", Kind::Table("server")),
        "The server that the module dials.",
    ),
];

/// The fields of an entry of `certificates`.
pub const CERTIFICATE: [Described; 5] = [
    (
        Field::new("chain", PEM).required(),
        "The certificates of the chain, the server's own first.",
    ),
    (
        Field::new("key", PEM).or_else("required without `host-key`"),
        "The private key.",
    ),
    (
        Field::new("host-key", HOST_KEY),
        "A [key that stays in the host](#keys-that-stay-in-the-host), in place of `key`.",
    ),
    (
        Field::new("ocsp", Kind::Text("base64")),
        "An OCSP response, for clients that ask.",
    ),
    (
        Field::new(
            "names",
            Kind::List("a list of names, such as `*.example.com`"),
        )
        .or_else("those of the certificate"),
        "The names that clients ask for.",
    ),
];

/// The fields of `clients`.
pub const CLIENTS: [Described; 5] = [
    (
        Field::choice("certificates", &["none", "optional", "required"]).required(),
        "The clients that must present a certificate.",
    ),
    (
        Field::new("roots", PEM).or_else("none: `allow` has pins alone"),
        "Roots for client certificates.",
    ),
    (
        Field::new("crls", PEM),
        "Revocation lists. A client without an entry in any list is refused, up to the root.",
    ),
    (
        Field::choice("stale-crls", &["refuse", "accept"]).or("refuse"),
        "The use of revocation lists that are out of date.",
    ),
    (
        Field::new(
            "allow",
            Kind::List(
                "a list of `cn:`, `dns:`, `uri:` or `email:` with a name, where `*` matches a part, or of \
                 `spki:sha256:<base64>`",
            ),
        )
        .or_else("all that the roots vouch for"),
        "The clients that are admitted. `spki` needs no root.",
    ),
];

/// The fields of `tickets`.
pub const TICKETS: [Described; 2] = [
    (
        Field::new("secret", Kind::Text("at least 32 bytes in base64")).or_else("a new one"),
        "The secret from which the keys of tickets follow.",
    ),
    (
        // A ticket is valid for two periods, and RFC 8446 allows seven days.
        Field::number("hours", "hours", 1, 84).or_number(12),
        "The time before the next key. A ticket is valid for up to twice as long.",
    ),
];

/// The fields of `limits`.
pub const LIMITS: [Described; 3] = [
    (
        Field::number("handshake", "seconds", 1, LONGEST).or_number(10),
        "The time for a handshake.",
    ),
    (
        Field::number("idle", "seconds", 1, LONGEST),
        "The time without traffic before a connection ends.",
    ),
    (
        Field::number("lifetime", "seconds", 1, LONGEST),
        "The longest time of a connection.",
    ),
];

/// The fields of `proxy-out`.
pub const PROXY_OUT: [Described; 3] = [
    (
        Field::choice("version", &["v1", "v2"]).required(),
        "The version of the header.",
    ),
    (
        Field::switch("certificate"),
        "The header has the client's certificate. It needs `v2`.",
    ),
    (
        Field::switch("unique-id"),
        "The header has an identifier of the connection. It needs `v2`.",
    ),
];

/// The fields of `server`.
pub const SERVER: [Described; 9] = [
    (
        Field::new("remote", HOST_AND_PORT),
        "The destination of connections that name none.",
    ),
    (
        Field::new("name", Kind::Text("a name or an address")).or_else("the destination's"),
        "The name that the module asks for.",
    ),
    (
        Field::new("verify", Kind::Text("a name or an address")).or_else("the destination's"),
        "The name that the certificate must have.",
    ),
    (
        Field::new("roots", PEM),
        "The roots of the server's certificate.",
    ),
    (
        Field::new("pins", Kind::List("a list of `sha256:<base64>`")),
        "Hashes of the server's key. A pin alone needs no root and no name.",
    ),
    (
        Field::new("alpn", PROTOCOLS),
        "The protocols that the client offers.",
    ),
    (
        Field::new("chain", PEM),
        "A certificate for the server to verify.",
    ),
    (Field::new("key", PEM), "The key of `chain`."),
    (
        Field::new("host-key", HOST_KEY),
        "A key that stays in the host, in place of `key`.",
    ),
];

pub(super) const OF_TICKETS: [Field; 2] = fields(&TICKETS);
pub(super) const OF_LIMITS: [Field; 3] = fields(&LIMITS);
