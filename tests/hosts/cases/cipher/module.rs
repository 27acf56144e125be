//! Seals the example of RFC 8439, section 2.8.2.

use watm_host_kit::crypto::{AeadAlgorithm, AeadKey};
use watm_host_kit::{Case, ConfigError, ErrorCode, StartOptions, case, done, refused, same};

const TEXT: &[u8] =
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
const DATA: [u8; 12] = [
    0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
];
const NONCE: [u8; 12] = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
/// The first block of the ciphertext, and the tag.
const FIRST: [u8; 16] = [
    0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb, 0x7b, 0x86, 0xaf, 0xbc, 0x53, 0xef, 0x7e, 0xc2,
];
const TAG: [u8; 16] = [
    0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06, 0x91,
];

struct Cipher;

impl Case for Cipher {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let key: Vec<u8> = (0x80..0xa0).collect();
        let key = AeadKey::create(AeadAlgorithm::Chacha20Poly1305, &key).map_err(refused)?;
        let mut sealed = key.seal(&NONCE, &DATA, TEXT).map_err(refused)?;
        same("the length", &sealed.len(), &(TEXT.len() + TAG.len()));
        same("the ciphertext", &sealed.get(..16), &Some(FIRST.as_slice()));
        same("the tag", &sealed.get(TEXT.len()..), &Some(TAG.as_slice()));
        same(
            "the text again",
            &key.open(&NONCE, &DATA, &sealed),
            &Ok(Some(TEXT.to_vec())),
        );
        sealed[0] ^= 1;
        same("a forgery", &key.open(&NONCE, &DATA, &sealed), &Ok(None));
        same(
            "a short nonce",
            &key.seal(&NONCE[1..], b"", b""),
            &Err(ErrorCode::InvalidArgument),
        );
        same(
            "no room for a tag",
            &key.open(&NONCE, b"", &TAG[1..]),
            &Err(ErrorCode::InvalidArgument),
        );
        let short = AeadKey::create(AeadAlgorithm::Aes128Gcm, &[0; 15]).err();
        same("a short key", &short, &Some(ErrorCode::InvalidArgument));
        done();
        Ok(Cipher)
    }
}

case!(Cipher);
