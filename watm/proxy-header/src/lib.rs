//! Headers of the PROXY protocol (HAProxy's `proxy-protocol.txt`, revision of 2026-04-27): their constants, TLVs, and
//! encoding. `watm-proxy-protocol` and `watm-tls` write them in modules, and `watm serve` writes them to upstreams.

pub mod tlv;
mod write;

pub use tlv::{Ssl, Tlv, Tlvs};
pub use write::{write_v1, write_v2};

use crc::{CRC_32_ISCSI, Crc};

/// The beginning of a header of version 2.
pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes before the addresses of version 2: the signature, version and command, family and protocol, length.
pub const FIXED: usize = 16;

/// The byte of version 2 with the command LOCAL.
pub const LOCAL: u8 = 0x20;
/// The byte of version 2 with the command PROXY.
pub const PROXY: u8 = 0x21;

/// The family of unknown addresses, in the high half of a byte, as each family.
pub const UNSPECIFIED: u8 = 0;
/// The family of IPv4.
pub const INET: u8 = 1;
/// The family of IPv6.
pub const INET6: u8 = 2;
/// The family of Unix sockets.
pub const UNIX: u8 = 3;

/// The number of [`Protocol::Stream`], in the low half of the byte.
pub const STREAM: u8 = 1;
/// The number of [`Protocol::Datagram`].
pub const DATAGRAM: u8 = 2;

/// CRC-32C (RFC 3720), of a whole header with zeros in the place of the checksum.
pub const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The kind of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP, or a stream of a Unix socket.
    Stream,
    /// UDP, or datagrams of a Unix socket.
    Datagram,
}

/// Returns OpenSSL's name of a cipher that has this name at IANA, as in the specification's example and as HAProxy
/// sends it. OpenSSL also uses IANA's names for ciphers of TLS 1.3.
pub fn openssl_name(iana: &str) -> String {
    let Some((exchange, cipher)) = iana
        .strip_prefix("TLS_")
        .and_then(|name| name.split_once("_WITH_"))
    else {
        return iana.to_owned();
    };
    format!("{exchange}-{cipher}")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        .replace("AES_", "AES")
        .replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_have_openssls_names() {
        for (iana, openssl) in [
            (
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256",
            ),
            (
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
            ),
            ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ] {
            assert_eq!(openssl_name(iana), openssl);
        }
    }

    #[test]
    fn the_checksum_is_that_of_iscsi() {
        // RFC 3720, B.4.
        assert_eq!(CHECKSUM.checksum(&[0; 32]), 0x8a91_36aa);
    }
}
