//! Private keys that modules sign with, and never see. Servers and dialers take [`Keys`].

mod handshake;
mod loaded;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use handshake::is_of_handshake;
use loaded::LoadedKey;

use crate::Error;

/// The most keys: more than a host of many names has in one place.
const MOST: usize = 1024;

/// The longest name of a key, in bytes.
const LONGEST_NAME: usize = 64;

/// The largest file with one private key, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Signs for modules with a private key that they never see: a key in memory, as [`Keys::add_file`]
/// makes it, or one in a device or an agent.
///
/// [`sign`](Signer::sign) is called on the thread of the module that asks, and all of its connections
/// wait for the result: it should take milliseconds, and must not take more than about a second.
pub trait Signer: Send + Sync {
    /// Returns the public key: a SubjectPublicKeyInfo in DER (RFC 5280).
    fn public_key(&self) -> Vec<u8>;

    /// Returns the schemes that it can sign by, the best first: numbers of TLS's registry of signature
    /// schemes (RFC 8446, section 4.2.3), such as 0x0403 for ECDSA with P-256 and SHA-256.
    fn schemes(&self) -> Vec<u16>;

    /// Returns the signature of `message`, which is not hashed yet, by one of these schemes. The message
    /// is one that a TLS handshake signs, of at most 128 KiB. The error is logged.
    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// Private keys that a module may sign with, by the names in its configuration.
///
/// The module gets signatures, only for TLS handshakes, and no key: its memory cannot impersonate
/// anybody once it has ended. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Keys {
    by_name: Arc<BTreeMap<String, Arc<dyn Signer>>>,
}

impl Keys {
    /// Returns an empty set of keys.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds the first private key of a PEM file (PKCS #8, PKCS #1 or SEC 1; RSA of 2048 bits and more,
    /// P-256, P-384, or Ed25519). Errors name the file.
    pub fn add_file(self, name: &str, path: &Path) -> Result<Keys, Error> {
        let file = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        if std::fs::metadata(path).map_err(file)?.len() > MAX_BYTES {
            let reason = format!("is larger than {MAX_BYTES} bytes; must be a private key in PEM");
            return Err(Error::Options(format!("{}: {reason}", path.display())));
        }
        let text = std::fs::read(path).map_err(file)?;
        let key = LoadedKey::of_pem(&text)
            .map_err(|reason| Error::Options(format!("{}: {reason}", path.display())))?;
        self.add(name, key)
    }

    /// Adds a key that a signer keeps. Fails if the name is taken, empty, or longer than 64 bytes, and
    /// if there are already 1024 keys.
    pub fn add(mut self, name: &str, signer: impl Signer + 'static) -> Result<Keys, Error> {
        let refuse = |reason: &str| Err(Error::Options(format!("key \"{name}\": {reason}")));
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return refuse("the name must have 1 to 64 bytes and no control characters");
        }
        let by_name = Arc::make_mut(&mut self.by_name);
        if by_name.len() >= MOST {
            return refuse("too many keys; must be at most 1024");
        }
        if by_name.contains_key(name) {
            return refuse("duplicate name; each key must have its own");
        }
        by_name.insert(name.to_owned(), Arc::new(signer));
        Ok(self)
    }

    #[doc(hidden)]
    pub fn get(&self, name: &str) -> Option<Arc<dyn Signer>> {
        self.by_name.get(name).cloned()
    }

    /// Returns the names, for people.
    #[doc(hidden)]
    pub fn names(&self) -> String {
        let names: Vec<String> = self
            .by_name
            .keys()
            .map(|name| format!("\"{name}\""))
            .collect();
        names.join(", ")
    }
}

/// Compares the names and the public keys.
impl PartialEq for Keys {
    fn eq(&self, other: &Keys) -> bool {
        let same = |one: &Arc<dyn Signer>, other: &Arc<dyn Signer>| {
            Arc::ptr_eq(one, other) || one.public_key() == other.public_key()
        };
        self.by_name.len() == other.by_name.len()
            && self
                .by_name
                .iter()
                .zip(other.by_name.iter())
                .all(|((name, one), (as_name, other))| name == as_name && same(one, other))
    }
}

impl Eq for Keys {}

/// Formats the names only.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(u8);

    impl Signer for Fake {
        fn public_key(&self) -> Vec<u8> {
            vec![self.0]
        }

        fn schemes(&self) -> Vec<u16> {
            vec![0x0403]
        }

        fn sign(&self, _: u16, _: &[u8]) -> Result<Vec<u8>, String> {
            Err("has no key".to_owned())
        }
    }

    #[test]
    fn keys_are_the_same_by_name_and_public_key() {
        let one = |name, key| Keys::new().add(name, Fake(key)).expect("a key");
        assert_eq!(one("a", 1), one("a", 1));
        assert_ne!(one("a", 1), one("a", 2));
        assert_ne!(one("a", 1), one("b", 1));
        assert_ne!(one("a", 1), Keys::new());
        assert_eq!(format!("{:?}", one("a", 1)), "{\"a\"}");
    }

    #[test]
    fn names_are_checked() {
        let add = |keys: Keys, name: &str| keys.add(name, Fake(1)).map_err(|e| e.to_string());
        let refused = "the name must have 1 to 64 bytes and no control characters";
        for name in ["", "a\n", &"x".repeat(65)] {
            assert!(add(Keys::new(), name).is_err_and(|error| error.contains(refused)));
        }
        let twice = add(add(Keys::new(), "a").expect("a key"), "a");
        assert!(twice.is_err_and(|error| error.starts_with("key \"a\": duplicate name")));
        let mut all = Keys::new();
        for name in 0..MOST {
            all = add(all, &name.to_string()).expect("a key");
        }
        assert!(add(all, "one").is_err_and(|error| error.contains("too many keys")));
    }
}
