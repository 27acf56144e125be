//! The methods by name, with their lengths. Used throughout the crate.

use std::fmt;
use std::str::FromStr;

/// An encryption method, which a server and its clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `aes-128-gcm` (SIP004).
    Aes128Gcm,
    /// `aes-192-gcm` (SIP004).
    Aes192Gcm,
    /// `aes-256-gcm` (SIP004).
    Aes256Gcm,
    /// `chacha20-ietf-poly1305` (SIP004).
    Chacha20IetfPoly1305,
    /// `xchacha20-ietf-poly1305` (SIP004).
    Xchacha20IetfPoly1305,
    /// `2022-blake3-aes-128-gcm` (SIP022).
    Blake3Aes128Gcm,
    /// `2022-blake3-aes-256-gcm` (SIP022).
    Blake3Aes256Gcm,
    /// `2022-blake3-chacha20-poly1305` (SIP022).
    Blake3Chacha20Poly1305,
    /// `2022-blake3-chacha12-poly1305` (SIP022).
    Blake3Chacha12Poly1305,
    /// `2022-blake3-chacha8-poly1305` (SIP022).
    Blake3Chacha8Poly1305,
}

use Method::*;

/// The names in go-shadowsocks2.
const ALIASES: [(&str, Method); 3] = [
    ("AEAD_AES_128_GCM", Aes128Gcm),
    ("AEAD_AES_256_GCM", Aes256Gcm),
    ("AEAD_CHACHA20_POLY1305", Chacha20IetfPoly1305),
];

impl Method {
    /// All methods.
    pub const ALL: [Method; 10] = [
        Aes128Gcm,
        Aes192Gcm,
        Aes256Gcm,
        Chacha20IetfPoly1305,
        Xchacha20IetfPoly1305,
        Blake3Aes128Gcm,
        Blake3Aes256Gcm,
        Blake3Chacha20Poly1305,
        Blake3Chacha12Poly1305,
        Blake3Chacha8Poly1305,
    ];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Aes128Gcm => "aes-128-gcm",
            Aes192Gcm => "aes-192-gcm",
            Aes256Gcm => "aes-256-gcm",
            Chacha20IetfPoly1305 => "chacha20-ietf-poly1305",
            Xchacha20IetfPoly1305 => "xchacha20-ietf-poly1305",
            Blake3Aes128Gcm => "2022-blake3-aes-128-gcm",
            Blake3Aes256Gcm => "2022-blake3-aes-256-gcm",
            Blake3Chacha20Poly1305 => "2022-blake3-chacha20-poly1305",
            Blake3Chacha12Poly1305 => "2022-blake3-chacha12-poly1305",
            Blake3Chacha8Poly1305 => "2022-blake3-chacha8-poly1305",
        }
    }

    /// The length of a key, and of a salt, in bytes.
    pub fn key_length(self) -> usize {
        match self {
            Aes128Gcm | Blake3Aes128Gcm => 16,
            Aes192Gcm => 24,
            _ => 32,
        }
    }

    /// Returns true for the methods of SIP022, and false for those of SIP004.
    pub fn is_2022(self) -> bool {
        matches!(
            self,
            Blake3Aes128Gcm
                | Blake3Aes256Gcm
                | Blake3Chacha20Poly1305
                | Blake3Chacha12Poly1305
                | Blake3Chacha8Poly1305
        )
    }

    /// Returns true if datagrams have an AES-encrypted header, and requests may name their user.
    pub fn has_headers(self) -> bool {
        matches!(self, Blake3Aes128Gcm | Blake3Aes256Gcm)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = ();

    fn from_str(text: &str) -> Result<Method, ()> {
        let alias = ALIASES
            .iter()
            .find(|(alias, _)| alias.eq_ignore_ascii_case(text));
        if let Some((_, method)) = alias {
            return Ok(*method);
        }
        let named = |method: &&Method| method.name().eq_ignore_ascii_case(text);
        Method::ALL.iter().find(named).copied().ok_or(())
    }
}
