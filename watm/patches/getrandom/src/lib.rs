//! A stand-in for `getrandom` 0.2 in this workspace: the part that `rand_core` 0.6 uses, with a
//! replaceable source.
//!
//! Protocol crates draw their keys and nonces through `rand_core::OsRng`, which takes no argument.
//! Here it draws from this thread's source: the system's, unless a test has replaced it with a
//! seeded one by [`set_source`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::{error, fmt};

/// Fills a slice with bytes.
pub type Source = Box<dyn FnMut(&mut [u8])>;

thread_local! {
    static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) };
}

/// The size of a private key in bytes.
const KEY: usize = 32;

/// The most keys kept: a handshake's message draws one, and is looked at before the next.
const KEPT: usize = 4;

thread_local! {
    static KEYS: RefCell<Option<VecDeque<[u8; KEY]>>> = const { RefCell::new(None) };
}

/// Keeps this thread's draws of key size from now on, for [`take_keys`], or stops. Off by default.
/// Forgets the draws kept before.
///
/// This is for key logs, with libraries that do not expose their keys.
pub fn keep_keys(keep: bool) {
    KEYS.set(keep.then(VecDeque::new));
}

/// Returns this thread's draws of exactly 32 bytes since the last call, in order, at most the last
/// four.
pub fn take_keys() -> Vec<[u8; 32]> {
    KEYS.with_borrow_mut(|keys| match keys {
        Some(keys) => keys.drain(..).collect(),
        None => Vec::new(),
    })
}

fn keep(drawn: &[u8]) {
    KEYS.with_borrow_mut(|keys| {
        if let (Some(keys), Ok(key)) = (keys, drawn.try_into()) {
            if keys.len() == KEPT {
                keys.pop_front();
            }
            keys.push_back(key);
        }
    });
}

/// Replaces this thread's source of randomness; `None`: use the system's.
///
/// This is for tests: the output of a predictable source is no secret.
pub fn set_source(source: Option<Source>) {
    SOURCE.with(|slot| *slot.borrow_mut() = source);
}

/// Fills `dest` with random bytes. Fails only if the system has none.
pub fn getrandom(dest: &mut [u8]) -> Result<(), Error> {
    SOURCE.with(|slot| match slot.borrow_mut().as_mut() {
        Some(source) => {
            source(dest);
            Ok(())
        }
        None => system::fill(dest).map_err(|_| Error(UNAVAILABLE)),
    })?;
    keep(dest);
    Ok(())
}

/// The error that the system gave no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(NonZeroU32);

/// The first code that `getrandom` reserves for itself: bit 31 distinguishes it from the system's.
const UNAVAILABLE: NonZeroU32 = NonZeroU32::new(1 << 31).expect("not zero");

impl Error {
    /// The code, which `rand_core` passes on.
    pub const fn code(self) -> NonZeroU32 {
        self.0
    }
}

impl From<NonZeroU32> for Error {
    fn from(code: NonZeroU32) -> Self {
        Error(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the system's random number generator failed (code {:#x})",
            self.0
        )
    }
}

impl error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_asked_by_default() {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        getrandom(&mut first).unwrap();
        getrandom(&mut second).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn keys_are_kept_when_that_is_wanted_and_no_more_than_the_last() {
        let mut key = [0; 32];
        getrandom(&mut key).unwrap();
        assert!(take_keys().is_empty());
        keep_keys(true);
        assert!(take_keys().is_empty());
        let drawn: Vec<_> = (0..6)
            .map(|_| {
                getrandom(&mut [0; 12]).unwrap();
                getrandom(&mut key).unwrap();
                key
            })
            .collect();
        assert_eq!(take_keys(), drawn[2..]);
        assert!(take_keys().is_empty());
        getrandom(&mut key).unwrap();
        keep_keys(false);
        assert!(take_keys().is_empty());
    }

    #[test]
    fn a_source_replaces_the_system_until_it_is_taken_away() {
        set_source(Some(Box::new(|dest| dest.fill(7))));
        let mut bytes = [0; 16];
        getrandom(&mut bytes).unwrap();
        assert_eq!(bytes, [7; 16]);
        set_source(None);
        getrandom(&mut bytes).unwrap();
        assert_ne!(bytes, [7; 16]);
    }
}
