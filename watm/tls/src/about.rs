//! The module's description of itself, for hosts. Used by the crate's root.

use crate::config::fields::{CERTIFICATE, CLIENTS, LIMITS, PROXY_OUT, ROOT, SERVER, TICKETS};
use watm_schema::about::{About, Format, TCP};

/// The description of the module.
pub const ABOUT: About = About {
    name: "tls",
    title: "TLS",
    summary: "TLS 1.2 and 1.3, as a server and as a client.",
    accepts: true,
    dials: true,
    sockets: TCP,
    destinations: false,
    alone: false,
    port: None,
    client: None,
    steer: &[],
    formats: &[Format {
        name: "json",
        tables: &[
            ("tls", &ROOT),
            ("certificates", &CERTIFICATE),
            ("clients", &CLIENTS),
            ("tickets", &TICKETS),
            ("limits", &LIMITS),
            ("proxy-out", &PROXY_OUT),
            ("server", &SERVER),
        ],
    }],
};
