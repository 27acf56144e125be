//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::{FIELDS, USER};
use watm_schema::about::{About, Format, TCP, TCP_AND_UDP};

/// The description of the module.
pub const ABOUT: About = About {
    name: "socks5",
    title: "SOCKS5",
    summary: "A SOCKS5 server with CONNECT and UDP ASSOCIATE, and a client of SOCKS5 and HTTP proxies.",
    accepts: true,
    dials: true,
    sockets: if cfg!(feature = "water-v1") {
        TCP
    } else {
        TCP_AND_UDP
    },
    destinations: cfg!(not(feature = "water-v1")),
    // The connection of an association and its datagrams belong to the same instance.
    alone: cfg!(not(feature = "water-v1")),
    port: Some(1080),
    client: None,
    steer: &[],
    formats: &[Format {
        name: "json",
        tables: &[("socks5", &FIELDS), ("user", &USER)],
    }],
};
