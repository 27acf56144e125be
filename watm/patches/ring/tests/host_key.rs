//! The host's key and the library are one cipher, and the host gets only texts that are long
//! enough.

use std::cell::RefCell;
use std::sync::Arc;

use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use watm_core::crypto::{self, AeadKey, Algorithm};

thread_local! {
    /// The requests to the host.
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn asked() -> Vec<String> {
    ASKED.take()
}

/// A host's cipher: the library, with a record of each call.
struct Host(ChaCha20Poly1305);

impl AeadKey for Host {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8]) -> [u8; 16] {
        ASKED.with_borrow_mut(|asked| asked.push(format!("seal {}", in_out.len())));
        let tag = self
            .0
            .encrypt_in_place_detached(nonce.into(), aad, in_out)
            .unwrap();
        tag.into()
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8]) -> bool {
        ASKED.with_borrow_mut(|asked| asked.push(format!("open {}", in_out.len())));
        let (text, tag) = in_out.split_last_chunk_mut::<16>().unwrap();
        self.0
            .decrypt_in_place_detached(nonce.into(), aad, text, (&*tag).into())
            .is_ok()
    }
}

fn grant(algorithm: Algorithm, key: &[u8]) -> Option<Arc<dyn AeadKey>> {
    ASKED.with_borrow_mut(|asked| asked.push("key".to_owned()));
    assert_eq!(algorithm, Algorithm::Chacha20Poly1305);
    Some(Arc::new(Host(
        ChaCha20Poly1305::new_from_slice(key).unwrap(),
    )))
}

fn refuse(_: Algorithm, _: &[u8]) -> Option<Arc<dyn AeadKey>> {
    ASKED.with_borrow_mut(|asked| asked.push("key".to_owned()));
    None
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, bytes).unwrap())
}

fn nonce(number: u8) -> Nonce {
    Nonce::assume_unique_for_key([number; 12])
}

/// The ciphertext and the tag.
fn seal(key: &LessSafeKey, number: u8, aad: &[u8], text: &[u8]) -> Vec<u8> {
    let mut sealed = text.to_vec();
    let tag = key
        .seal_in_place_separate_tag(nonce(number), Aad::from(aad), &mut sealed)
        .unwrap();
    sealed.extend_from_slice(tag.as_ref());
    sealed
}

fn open(key: &LessSafeKey, number: u8, aad: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut sealed = sealed.to_vec();
    let text = key.open_in_place(nonce(number), Aad::from(aad), &mut sealed);
    text.ok().map(|text| text.to_vec())
}

#[test]
fn the_vector_of_rfc_8439_comes_out() {
    // Section 2.8.2.
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you \
                 only one tip for the future, sunscreen would be it.";
    let aad = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let bytes: Vec<u8> = (0x80..0xa0).collect();
    for provider in [None, Some(grant as crypto::Provider)] {
        crypto::set_provider(provider);
        let key = key(&bytes.clone().try_into().unwrap());
        let mut sealed = text.to_vec();
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(aad),
                &mut sealed,
            )
            .unwrap();
        assert_eq!(
            sealed[..8],
            [0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb]
        );
        assert_eq!(
            tag.as_ref(),
            [
                0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60,
                0x06, 0x91
            ]
        );
    }
}

#[test]
fn the_host_and_the_library_agree_on_every_length() {
    let bytes = [3; 32];
    // Miri takes a second for a hundred bytes: it gets the ends of blocks, and texts over several.
    let lengths: Vec<usize> = match cfg!(miri) {
        true => vec![0, 1, 16, 63, 64, 65, 130],
        false => (0..600).chain([1420, 1421, 4096, 65535]).collect(),
    };
    for length in lengths {
        let text: Vec<u8> = (0..length).map(|n| n as u8).collect();
        crypto::set_provider(Some(grant));
        let by_host = key(&bytes);
        let from_host = seal(&by_host, 1, b"aad", &text);
        crypto::set_provider(None);
        let by_library = key(&bytes);
        assert_eq!(seal(&by_library, 1, b"aad", &text), from_host);
        assert_eq!(open(&by_library, 1, b"aad", &from_host).unwrap(), text);
        assert_eq!(open(&by_host, 1, b"aad", &from_host).unwrap(), text);
    }
}

#[test]
fn what_is_not_authentic_does_not_open() {
    for provider in [None, Some(grant as crypto::Provider)] {
        crypto::set_provider(provider);
        let key = key(&[4; 32]);
        // Each byte of each text is damaged, which takes Miri minutes for the longest.
        let lengths: &[usize] = if cfg!(miri) { &[0, 2] } else { &[0, 20, 600] };
        for &length in lengths {
            let sealed = seal(&key, 1, b"aad", &vec![9; length]);
            assert!(open(&key, 1, b"aad", &sealed).is_some());
            assert!(open(&key, 2, b"aad", &sealed).is_none());
            assert!(open(&key, 1, b"bad", &sealed).is_none());
            for at in 0..sealed.len() {
                let mut tampered = sealed.clone();
                tampered[at] ^= 1;
                assert!(open(&key, 1, b"aad", &tampered).is_none());
            }
        }
        assert!(open(&key, 1, b"", &[0; 15]).is_none(), "no room for a tag");
    }
}

#[test]
fn the_host_gets_a_key_with_the_first_text_worth_it() {
    crypto::set_provider(Some(grant));
    let key = key(&[5; 32]);
    let short = seal(&key, 1, b"", &[0; 48]);
    open(&key, 1, b"", &short).unwrap();
    assert!(asked().is_empty(), "a handshake's keys never leave");
    let long = seal(&key, 2, b"", &[0; 512]);
    open(&key, 2, b"", &long).unwrap();
    assert_eq!(asked(), ["key", "seal 512", "open 528"]);
}

#[test]
fn a_host_that_refuses_is_asked_once_a_key() {
    crypto::set_provider(Some(refuse));
    let key = key(&[6; 32]);
    for number in 0..3 {
        let sealed = seal(&key, number, b"", &[0; 512]);
        assert_eq!(open(&key, number, b"", &sealed).unwrap(), [0; 512]);
    }
    assert_eq!(asked(), ["key"]);
}

#[test]
fn a_key_has_32_bytes_and_is_not_printed() {
    assert!(UnboundKey::new(&CHACHA20_POLY1305, &[0; 31]).is_err());
    assert!(UnboundKey::new(&CHACHA20_POLY1305, &[0; 33]).is_err());
    assert_eq!(format!("{:?}", key(&[1; 32])), "LessSafeKey");
}
