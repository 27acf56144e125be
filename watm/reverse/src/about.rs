//! The module's description of itself, for hosts. Used by the crate's root.

use watm_schema::about::{About, Format, TCP};
use watm_stream::SYMMETRIC;

/// The description of the module.
pub const ABOUT: About = About {
    name: "reverse",
    title: "Reverse",
    summary: "Reverses the bytes of each message, for demonstrations.",
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
        tables: &[("reverse", &SYMMETRIC)],
    }],
};
