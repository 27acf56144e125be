//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::FIELDS;
use watm_schema::about::{About, Format, TCP, TCP_AND_UDP};

/// The description of the module.
pub const ABOUT: About = About {
    name: "proxy-protocol",
    title: "PROXY protocol",
    summary: "Reads the PROXY protocol of a proxy in front, and writes it for a server behind.",
    accepts: true,
    dials: true,
    sockets: if cfg!(feature = "water-v1") {
        TCP
    } else {
        TCP_AND_UDP
    },
    destinations: cfg!(not(feature = "water-v1")),
    alone: false,
    port: None,
    client: None,
    steer: &[],
    formats: &[Format {
        name: "toml",
        tables: &[("proxy-protocol", &FIELDS)],
    }],
};
