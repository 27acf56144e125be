//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::FIELDS;
use watm_schema::about::{About, Format, Socket, Transport};

/// The description of the module.
pub const ABOUT: About = About {
    name: "tun",
    title: "Device",
    summary: "Flows of the packets that a system sends into a network device.",
    accepts: true,
    dials: true,
    sockets: &[Socket {
        label: "tun",
        transport: Transport::Packets,
    }],
    destinations: true,
    // Two instances cannot read from one device: each would get a part of the packets of a flow.
    alone: true,
    port: None,
    client: None,
    steer: &[],
    formats: &[Format {
        name: "json",
        tables: &[("tun", &FIELDS)],
    }],
};
