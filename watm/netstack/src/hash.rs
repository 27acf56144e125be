//! Hash maps for keys that peers choose.

use std::collections::HashMap;
use std::hash::BuildHasher;

use siphasher::sip::SipHasher13;

/// A map whose keys peers choose. Its hash is keyed, so that peers cannot make them collide.
pub(crate) type Map<K, V> = HashMap<K, V, Keyed>;

/// SipHash-1-3 under a secret key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed {
    key: (u64, u64),
}

impl Keyed {
    /// Makes a different hash for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Keyed {
            key: (seed, !seed.rotate_left(32)),
        }
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key.0, self.key.1)
    }
}
