//! Salts: new ones, and the memory of used ones against replays. Used throughout the crate.

use std::collections::BTreeSet;

use crate::cipher::{self, Key, LONGEST_KEY};
use crate::method::Method;

/// The most requests of SIP022 remembered in a minute: four thousand a second. Beyond that, new
/// ones are refused, since the memory must neither grow nor forget.
const IN_A_MINUTE: usize = 1 << 18;

/// The least time in seconds for which a salt of SIP022 is remembered. A request is accepted for
/// half a minute before and after its time, so that it is too old after a minute.
const MINUTE: u64 = 60;

/// The least number of SIP004 salts remembered; at most twice as many are. Such a request carries
/// no time, so that a replay with an older salt is not detected.
const LAST: usize = 1 << 17;

/// A memory of used salts.
#[derive(Debug)]
pub struct Salts {
    current: BTreeSet<[u8; LONGEST_KEY]>,
    previous: BTreeSet<[u8; LONGEST_KEY]>,
    /// The start of `current`, for memories that forget by time.
    began: Option<u64>,
}

impl Salts {
    /// Makes a memory for requests with a time, or for those without.
    pub fn new(timed: bool) -> Salts {
        Salts {
            current: BTreeSet::new(),
            previous: BTreeSet::new(),
            began: timed.then_some(0),
        }
    }

    /// Remember a salt that a holder of a key used in this second. Returns false if it was used
    /// before, or cannot be remembered.
    pub fn admit(&mut self, salt: &[u8], now: u64) -> bool {
        let mut entry = [0; LONGEST_KEY];
        entry[..salt.len()].copy_from_slice(salt);
        match &mut self.began {
            Some(began) if now >= began.saturating_add(MINUTE) => {
                self.previous = std::mem::take(&mut self.current);
                if now >= began.saturating_add(2 * MINUTE) {
                    self.previous.clear();
                }
                *began = now;
            }
            Some(_) if self.current.len() >= IN_A_MINUTE => return false,
            None if self.current.len() >= LAST => {
                self.previous = std::mem::take(&mut self.current);
            }
            _ => {}
        }
        !self.previous.contains(&entry) && self.current.insert(entry)
    }

    /// Encodes all remembered salts, for [`Self::follow`].
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.began.unwrap_or(0).to_be_bytes());
        for set in [&self.previous, &self.current] {
            let count = u32::try_from(set.len()).expect("there are at most 2^18");
            to.extend_from_slice(&count.to_be_bytes());
            set.iter().for_each(|salt| to.extend_from_slice(salt));
        }
    }

    /// Replaces the memory by an encoded one. Returns the bytes behind it. `None`, and nothing
    /// changes, if it is truncated or holds too much.
    pub fn follow<'a>(&mut self, from: &'a [u8]) -> Option<&'a [u8]> {
        let (began, from) = from.split_first_chunk()?;
        let (previous, from) = read(from)?;
        let (current, from) = read(from)?;
        *self = Salts {
            current,
            previous,
            began: self.began.map(|_| u64::from_be_bytes(*began)),
        };
        Some(from)
    }

    /// The number of remembered salts.
    pub fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }
}

/// Parses one set of an encoded memory. Returns it with the bytes behind it.
fn read(from: &[u8]) -> Option<(BTreeSet<[u8; LONGEST_KEY]>, &[u8])> {
    let (count, from) = from.split_first_chunk()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    if count > IN_A_MINUTE.max(LAST) {
        return None;
    }
    let (salts, from) = from.split_at_checked(count * LONGEST_KEY)?;
    let (salts, _) = salts.as_chunks();
    Some((salts.iter().copied().collect(), from))
}

/// Makes a new salt that begins with `prefix`.
pub fn fresh(method: Method, prefix: &[u8]) -> Key {
    let mut bytes = [0; LONGEST_KEY];
    let salt = &mut bytes[..method.key_length()];
    cipher::random(salt);
    salt[..prefix.len()].copy_from_slice(prefix);
    Key::new(salt).expect("a salt is as long as a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn salt(number: usize) -> [u8; LONGEST_KEY] {
        let mut salt = [0; LONGEST_KEY];
        salt[..8].copy_from_slice(&(number as u64).to_be_bytes());
        salt
    }

    /// With so many others that were used in this second.
    fn filled(timed: bool, count: usize) -> Salts {
        let mut salts = Salts::new(timed);
        for number in 0..count {
            assert!(salts.admit(&salt(number), NOW), "{number}");
        }
        salts
    }

    #[test]
    fn a_salt_of_a_time_is_remembered_for_a_minute_and_no_longer_than_two() {
        for (used, again, is_new) in [
            (0, 0, false),
            (0, 59, false),
            (0, 60, false),
            (0, 119, false),
            (0, 120, true),
            (59, 118, false),
            (59, 119, false),
            (59, 120, true),
        ] {
            let mut salts = filled(true, 1);
            salts.admit(&salt(1), NOW + used);
            assert_eq!(salts.admit(&salt(1), NOW + again), is_new, "{used} {again}");
        }
    }

    #[test]
    fn a_salt_is_remembered_across_the_end_of_a_minute() {
        let mut salts = filled(true, 1);
        assert!(salts.admit(&salt(1), NOW + 59));
        assert!(salts.admit(&salt(2), NOW + 60));
        assert!(!salts.admit(&salt(1), NOW + 61));
        // The second minute began with the salt that was new then.
        assert!(salts.admit(&salt(3), NOW + 119));
        assert!(!salts.admit(&salt(1), NOW + 119));
        assert!(salts.admit(&salt(1), NOW + 120));
        assert!(!salts.admit(&salt(3), NOW + 120));
    }

    #[test]
    fn more_salts_in_a_minute_than_are_remembered_are_refused() {
        let mut salts = filled(true, IN_A_MINUTE);
        assert_eq!(salts.len(), IN_A_MINUTE);
        assert!(!salts.admit(&salt(IN_A_MINUTE), NOW + 59));
        assert!(salts.admit(&salt(IN_A_MINUTE), NOW + 60));
        assert!(!salts.admit(&salt(0), NOW + 60));
        assert_eq!(salts.len(), IN_A_MINUTE + 1);
    }

    #[test]
    fn the_last_salts_without_a_time_are_remembered() {
        let mut salts = filled(false, LAST);
        assert!(!salts.admit(&salt(0), u64::MAX));
        for number in LAST..2 * LAST {
            assert!(salts.admit(&salt(number), NOW), "{number}");
        }
        assert_eq!(salts.len(), 2 * LAST);
        assert!(!salts.admit(&salt(LAST), NOW));
        // There was no room for all of them.
        assert_eq!(salts.len(), LAST);
        assert!(salts.admit(&salt(0), NOW));
    }

    #[test]
    fn what_is_written_down_is_followed_whole_or_not_at_all() {
        let mut salts = filled(true, 3);
        assert!(salts.admit(&salt(3), NOW + 60));
        let mut written = Vec::new();
        salts.write(&mut written);
        for cut in 0..written.len() {
            let mut next = filled(true, 1);
            assert!(next.follow(&written[..cut]).is_none(), "{cut}");
            assert_eq!(next.len(), 1);
        }
        let mut next = filled(true, 1);
        written.extend_from_slice(b"rest");
        assert_eq!(next.follow(&written), Some(&b"rest"[..]));
        assert_eq!(next.len(), 4);
        assert!(!next.admit(&salt(0), NOW + 119));
        // Its minutes end when those of the other do.
        assert!(next.admit(&salt(0), NOW + 120));
        assert!(!next.admit(&salt(3), NOW + 120));
    }

    #[test]
    fn as_many_as_may_be_remembered_are_followed_and_no_more() {
        let with = |count: usize| {
            let mut written = [0; 12].to_vec();
            written.extend_from_slice(&(count as u32).to_be_bytes());
            written.extend((0..count).flat_map(salt));
            let mut salts = Salts::new(true);
            salts.follow(&written).map(|_| salts.len())
        };
        assert_eq!(with(IN_A_MINUTE), Some(IN_A_MINUTE));
        assert_eq!(with(IN_A_MINUTE + 1), None);
    }

    #[test]
    fn a_memory_without_times_keeps_none_of_another() {
        let mut written = Vec::new();
        filled(true, 1).write(&mut written);
        let mut salts = Salts::new(false);
        assert!(salts.follow(&written).is_some());
        assert!(!salts.admit(&salt(0), NOW + 1000));
    }
}
