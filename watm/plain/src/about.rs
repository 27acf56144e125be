//! The module's description of itself, for hosts. Used by the crate's root.

use watm_schema::about::{About, Format, TCP};
use watm_stream::SYMMETRIC;

/// The description of the module.
pub const ABOUT: About = About {
    name: "plain",
    title: "Plain TCP",
    summary: "Carries bytes unchanged, without encryption.",
    accepts: true,
    dials: true,
    sockets: TCP,
    destinations: false,
    alone: false,
    port: None,
    client: None,
    steer: &[],
    formats: &[Format {
        name: "toml",
        tables: &[("plain", &SYMMETRIC)],
    }],
};
