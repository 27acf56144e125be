//! The fields of a configuration and of a user. Used by `json`, and by the test of the page.

use watm_schema::{Described, Field, HOST_AND_PORT, Kind, fields};

/// The fields of one server in JSON.
pub const FIELDS: [Described; 11] = [
    (
        Field::new("method", Kind::Text("the name of a method")).required(),
        "One of the [methods](#methods).",
    ),
    (
        Field::new("password", Kind::Text("a string")).required(),
        "A password, or a key in base64 for the 2022 methods. A client that is one of several users has the server's key \
         and its own, with `:` between them.",
    ),
    (
        Field::new("users", Kind::List("a list")),
        "The [users](#users) of a server with `2022-blake3-aes-…-gcm`.",
    ),
    (
        Field::new(
            "server",
            Kind::Any("a host name or an address, or a list of them"),
        ),
        "The server, for a client. A server listens where its host says.",
    ),
    (
        Field::number("server_port", "", 1, 65_535),
        "The port of `server`. `server` needs it.",
    ),
    (
        Field::new("target", HOST_AND_PORT),
        "The destination of connections that name none.",
    ),
    (
        Field::choice("mode", &["tcp_and_udp", "tcp_only", "udp_only"]).or("tcp_and_udp"),
        "The flows that are carried.",
    ),
    (
        // From the least in SIP022 to a day.
        Field::number("udp_idle_timeout", "seconds", 60, 86_400).or_number(300),
        "The time without traffic before a UDP flow ends.",
    ),
    (
        Field::new(
            "prefix",
            Kind::Text("at most 8 characters from U+0000 to U+00FF"),
        ),
        "The first bytes of a client's salts.",
    ),
    (
        Field::switch("segmented_header"),
        "The beginning of a 2022 request may arrive in pieces, as in another transport's stream. A stranger can then tell \
         its length.",
    ),
    (
        Field::choice("gfw_report_compat", &["insecure"]),
        "The wire format of gfw-report's patch, which is insecure.",
    ),
];

/// The fields of a user.
pub const USER: [Described; 2] = [
    (
        Field::new("name", Kind::Text("a string")).required(),
        "The peer of the user's flows. At most 255 bytes, all printable.",
    ),
    (
        Field::new("password", Kind::Text("a string")).required(),
        "The user's key in base64.",
    ),
];

pub(super) const OF_SERVER: [Field; 11] = fields(&FIELDS);
pub(super) static OF_USER: [Field; 2] = fields(&USER);
