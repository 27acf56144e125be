//! Signs with the key of RFC 8032, section 7.1, test 1, a message of RFC 8446, section 4.4.3.

use watm_host_kit::signing::PrivateKey;
use watm_host_kit::{Case, ConfigError, ErrorCode, StartOptions, case, done, refused, same};

/// Ed25519, and ECDSA with P-256, which such a key cannot use.
const ED25519: u16 = 0x0807;
const ECDSA_P256: u16 = 0x0403;

/// A SubjectPublicKeyInfo without the key (RFC 8410, section 4).
const INFO: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
const PUBLIC: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];
/// The signature of the message with a hash of zeros, by OpenSSL 3.5. Ed25519 has one signature for
/// a message.
const SIGNATURE: [u8; 64] = [
    0xcd, 0xfd, 0x3f, 0x21, 0x2b, 0xdb, 0xe8, 0xc6, 0x61, 0xee, 0xe8, 0xc3, 0x79, 0xdf, 0xcb, 0x87,
    0xaf, 0xe8, 0x31, 0x3d, 0x9a, 0x64, 0x35, 0x3a, 0x81, 0xd6, 0x47, 0x5b, 0xed, 0xdd, 0x7a, 0xc5,
    0xce, 0x01, 0x6d, 0x72, 0x13, 0xa2, 0x17, 0xcb, 0x06, 0x44, 0x06, 0xcb, 0x3d, 0x3e, 0xa7, 0x43,
    0x3e, 0x4a, 0x19, 0xd3, 0x6c, 0xd5, 0x9a, 0x9b, 0x3f, 0x71, 0x63, 0xdb, 0x4c, 0xb6, 0x47, 0x04,
];

struct Signing;

impl Case for Signing {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let unknown = PrivateKey::open("nobody").err();
        same("another name", &unknown, &Some(ErrorCode::AccessDenied));
        let key = PrivateKey::open("host").map_err(refused)?;
        same(
            "the public key",
            &key.public_key(),
            &[&INFO[..], &PUBLIC].concat(),
        );
        same("the schemes", &key.schemes(), &vec![ED25519]);
        let mut message = vec![b' '; 64];
        message.extend(b"TLS 1.3, server CertificateVerify\0");
        message.extend([0; 32]);
        same(
            "the signature",
            &key.sign(ED25519, &message),
            &Ok(SIGNATURE.to_vec()),
        );
        same(
            "another scheme",
            &key.sign(ECDSA_P256, &message),
            &Err(ErrorCode::NotSupported),
        );
        same(
            "another message",
            &key.sign(ED25519, b"a contract"),
            &Err(ErrorCode::InvalidArgument),
        );
        done();
        Ok(Signing)
    }
}

case!(Signing);
