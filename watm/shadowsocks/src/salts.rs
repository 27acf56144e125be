//! Salts: new ones, and which there were.

use std::collections::BTreeSet;

use crate::cipher::{self, Key, LONGEST_KEY};
use crate::method::Method;

/// Requests of SIP022 that are remembered in a minute: four thousand a second. Beyond, new ones
/// are refused, since the memory must neither grow nor forget.
const IN_A_MINUTE: usize = 1 << 18;

/// For how many seconds a salt of SIP022 is remembered at least. A request is taken for half a
/// minute before and after its time, so it is old after one.
const MINUTE: u64 = 60;

/// Salts of SIP004 that are remembered at least; at most it is twice as many. Such a request
/// says no time, so that one older than these can be replayed: there is no way to tell.
const LAST: usize = 1 << 17;

/// Salts that have been used.
#[derive(Debug)]
pub struct Salts {
    current: BTreeSet<[u8; LONGEST_KEY]>,
    previous: BTreeSet<[u8; LONGEST_KEY]>,
    /// For those that are forgotten by time: when `current` began.
    began: Option<u64>,
}

impl Salts {
    /// For requests that say their time, or for those that do not.
    pub fn new(timed: bool) -> Salts {
        Salts {
            current: BTreeSet::new(),
            previous: BTreeSet::new(),
            began: timed.then_some(0),
        }
    }

    /// Remember one that was used in this second, by somebody who has a key. False if it was
    /// used before, or cannot be remembered.
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

    /// Write down all that are remembered, for [`Self::follow`].
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.began.unwrap_or(0).to_be_bytes());
        for set in [&self.previous, &self.current] {
            let count = u32::try_from(set.len()).expect("there are at most 2^18");
            to.extend_from_slice(&count.to_be_bytes());
            set.iter().for_each(|salt| to.extend_from_slice(salt));
        }
    }

    /// Remember what another memory of this kind wrote down, and nothing else. Returns what
    /// follows it; `None`, and nothing has changed, if it is cut short or holds too much.
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

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }
}

/// One set of a memory that was written down, and what follows it.
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

/// A new salt that begins with `prefix`.
pub fn fresh(method: Method, prefix: &[u8]) -> Key {
    let mut bytes = [0; LONGEST_KEY];
    let salt = &mut bytes[..method.key_length()];
    cipher::random(salt);
    salt[..prefix.len()].copy_from_slice(prefix);
    Key::new(salt).expect("a salt is as long as a key")
}
