//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::{FIELDS, USER};
use watm_schema::about::{About, Format, TCP, TCP_AND_UDP};

/// The description of the module.
pub const ABOUT: About = About {
    name: "shadowsocks",
    title: "Shadowsocks",
    summary: "A Shadowsocks server and client, with the methods of SIP004 and SIP022.",
    accepts: true,
    dials: true,
    sockets: if cfg!(feature = "water-v1") {
        TCP
    } else {
        TCP_AND_UDP
    },
    destinations: cfg!(not(feature = "water-v1")),
    // Replay protection needs one memory of all salts.
    alone: cfg!(not(feature = "water-v1")),
    port: Some(8388),
    client: Some("Open the Shadowsocks app on your phone or computer, and add a server."),
    steer: &[],
    formats: &[Format {
        name: "json",
        tables: &[("server", &FIELDS), ("user", &USER)],
    }],
};
