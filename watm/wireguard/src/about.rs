//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::fields::{INTERFACE, MITMPROXY, PEER, WATM};
use watm_schema::about::{About, Format, Steer, TCP, UDP};

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
    steer: if cfg!(feature = "water-v1") {
        &[]
    } else {
        INDEXED
    },
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

/// Messages with the index of their receiver (WireGuard paper, section 5.4), of which the upper eight
/// bits lead to a worker: see `home`. They are a response, a cookie and data.
const INDEXED: &[Steer] = &[
    Steer { kind: 2, byte: 11 },
    Steer { kind: 3, byte: 7 },
    Steer { kind: 4, byte: 7 },
];
