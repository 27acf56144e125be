//! The sliding window against replayed packets, one for each session. Used by `client`,
//! `remembered` and `server`.

/// The number of packets that may come out of order: a millisecond of the fastest links.
const SIZE: u64 = 2048;
const WORDS: usize = SIZE as usize / 64;

/// A sliding window over packet numbers (RFC 6479).
#[derive(Debug, Clone)]
pub struct Window {
    /// The number after the highest one seen.
    next: u64,
    seen: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Window {
        Window {
            next: 0,
            seen: [0; WORDS],
        }
    }
}

impl Window {
    /// Returns true if a packet with this number may be new.
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return number < u64::MAX;
        }
        let (word, bit) = Window::place(number);
        self.next - number <= SIZE - 64 && self.seen[word] & bit == 0
    }

    /// Record an authentic packet with this number. Returns false if it is not new.
    pub fn admit(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number >= self.next {
            // The words that the window has moved onto: none of their numbers has been seen.
            let old = self.next.div_ceil(64);
            let new = number / 64 + 1;
            for word in old..new.min(old + WORDS as u64) {
                self.seen[word as usize % WORDS] = 0;
            }
            self.next = number + 1;
        }
        let (word, bit) = Window::place(number);
        self.seen[word] |= bit;
        true
    }

    /// The length of an encoded window in bytes.
    pub const LENGTH: usize = 8 * (1 + WORDS);

    /// Appends the window, for [`Self::read`].
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.next.to_be_bytes());
        for word in self.seen {
            to.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Parses a window. `None` if the length is wrong.
    pub fn read(from: &[u8]) -> Option<Window> {
        let (words, rest) = from.as_chunks();
        let (&next, seen) = words.split_first()?;
        let seen: &[[u8; 8]; WORDS] = seen.try_into().ok()?;
        rest.is_empty().then(|| Window {
            next: u64::from_be_bytes(next),
            seen: seen.map(u64::from_be_bytes),
        })
    }

    fn place(number: u64) -> (usize, u64) {
        ((number / 64) as usize % WORDS, 1 << (number % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_admitted_once() {
        let mut window = Window::default();
        for number in [0, 5, 3, 4, 64, 63, 128, 1] {
            assert!(window.admit(number), "{number}");
            assert!(!window.admit(number), "{number} again");
        }
    }

    #[test]
    fn what_is_too_old_is_not() {
        let mut window = Window::default();
        assert!(window.admit(10_000));
        assert!(window.admit(10_001 - (SIZE - 64)));
        assert!(!window.admit(10_000 - (SIZE - 64)));
        assert!(!window.admit(0));
        assert!(!window.admit(u64::MAX), "nothing could follow it");
    }

    #[test]
    fn a_jump_forgets_all_numbers_that_share_a_place_with_later_ones() {
        for first in 0..130 {
            let mut window = Window::default();
            assert!(window.admit(first));
            assert!(window.admit(first + SIZE + 15));
            assert!(window.admit(first + SIZE), "{first}");
            assert!(!window.admit(first), "{first}");
        }
    }

    #[test]
    fn it_is_the_same_as_a_set() {
        let mut window = Window::default();
        let mut seen = std::collections::BTreeSet::new();
        let (mut state, mut highest) = (1_u64, 0_u64);
        for _ in 0..50_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let jump = if state >> 60 == 0 { 5000 } else { 20 };
            let number = (highest + (state >> 33) % jump).saturating_sub((state >> 45) % 100);
            let recent = number >= highest || highest + 1 - number <= SIZE - 64;
            let new = recent && !seen.contains(&number);
            assert_eq!(window.admit(number), new, "{number} after {highest}");
            seen.insert(number);
            highest = highest.max(number);
        }
        let mut written = Vec::new();
        window.write(&mut written);
        assert_eq!(written.len(), Window::LENGTH);
        let read = Window::read(&written).expect("whole");
        assert_eq!((read.next, read.seen), (window.next, window.seen));
        assert!(Window::read(&written[1..]).is_none());
    }
}
