//! Keys as text: 32 bytes in base64. Used throughout the crate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Decodes a key. The error does not repeat the text, which may be a secret in any field.
pub fn decode(text: &str) -> Result<[u8; 32], &'static str> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| "not base64; a key is 44 characters of base64, ending in '='")?;
    bytes
        .try_into()
        .map_err(|_| "wrong length; a key is 32 bytes, which is 44 characters of base64")
}

/// Encodes a key.
pub fn encode(key: &[u8; 32]) -> String {
    STANDARD.encode(key)
}
