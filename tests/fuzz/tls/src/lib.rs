//! Fuzz targets for the bytes that strangers and clients can send to TLS: functions of bytes.

mod first;
mod records;
mod settings;

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("tls-config", settings::run),
    ("tls-first", first::run),
    ("tls-records", records::run),
];

/// A certificate for `example.com`, for a hundred years, and its key.
const EXAMPLE: &str = include_str!("example.pem");
