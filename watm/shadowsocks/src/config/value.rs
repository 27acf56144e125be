//! Values that occur in more than one format. Used by `json`, `unique` and `url`.

use watm_core::{ConfigError, Destination};

use crate::method::Method;

/// The length of the longest prefix in bytes: it leaves enough of a salt random, so that none
/// repeats.
const LONGEST_PREFIX: usize = 8;

/// The error about a field.
pub fn field(name: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::Field(name.to_owned(), why.into())
}

/// Parses the name of a method.
pub fn method(text: &str) -> Result<Method, String> {
    text.parse().map_err(|()| {
        let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        let old = [
            "none",
            "plain",
            "rc4",
            "table",
            "cfb",
            "ctr",
            "chacha20-ietf",
            "salsa20",
        ];
        let why = match old
            .iter()
            .any(|old| text.to_ascii_lowercase().contains(old))
        {
            true => "not supported, because it encrypts without authentication",
            false => "unknown",
        };
        format!("{why}; expected one of {}", names.join(", "))
    })
}

/// Makes a destination of a host and a port.
pub fn destination(host: &str, port: u16) -> Option<Destination> {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let text = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    text.parse().ok()
}

/// Parses a prefix: each character stands for one byte.
pub fn prefix(text: &str) -> Result<Vec<u8>, String> {
    let bytes: Option<Vec<u8>> = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).ok())
        .collect();
    match bytes {
        None => Err("expected characters from U+0000 to U+00FF, one for each byte".to_owned()),
        Some(bytes) if bytes.len() > LONGEST_PREFIX => Err(format!(
            "{} bytes; expected at most {LONGEST_PREFIX}, so that enough of the salt is random",
            bytes.len()
        )),
        Some(bytes) => Ok(bytes),
    }
}

/// Shortens the user's text for a message: one line, and not long.
pub fn quote(text: &str) -> String {
    let cut: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    match cut.is_empty() {
        true => "''".to_owned(),
        false => cut,
    }
}
