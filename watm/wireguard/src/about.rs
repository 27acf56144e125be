//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::fields::{INTERFACE, MITMPROXY, PEER, WATM};
use watm_schema::about::{About, Format, TCP, UDP};

/// The description of the module.
pub const ABOUT: About = About {
    name: "wireguard",
    title: "WireGuard",
    summary: "A WireGuard server and client with a network stack.",
    accepts: true,
    dials: true,
    sockets: if cfg!(feature = "water-v1") { TCP } else { UDP },
    destinations: cfg!(not(feature = "water-v1")),
    alone: false,
    port: Some(51820),
    client: Some("Open the WireGuard app on your phone or computer, and add a tunnel."),
    steer: &[],
    formats: &[
        Format {
            name: "wg",
            tables: &[("Interface", &INTERFACE), ("Peer", &PEER), ("Watm", &WATM)],
        },
        Format {
            name: "mitmproxy-wireguard",
            tables: &[("mitmproxy", &MITMPROXY)],
        },
    ],
};
