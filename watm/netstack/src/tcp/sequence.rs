//! Positions in TCP's sequence space, which wraps (RFC 9293 section 3.4).

/// A position in the sequence space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Sequence(pub u32);

/// A range of positions: its first, and the one after its last.
pub(crate) type Block = (Sequence, Sequence);

impl Sequence {
    pub(crate) fn plus(self, bytes: usize) -> Sequence {
        // Positions wrap modulo 2^32; lengths are far below that.
        Sequence(self.0.wrapping_add(bytes as u32))
    }

    pub(crate) fn minus(self, bytes: usize) -> Sequence {
        Sequence(self.0.wrapping_sub(bytes as u32))
    }

    /// The bytes from here to `end`; 0 if that is not after this.
    pub(crate) fn until(self, end: Sequence) -> usize {
        match end.is_after(self) {
            true => end.0.wrapping_sub(self.0) as usize,
            false => 0,
        }
    }

    pub(crate) fn is_after(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    pub(crate) fn later(self, other: Sequence) -> Sequence {
        if other.is_after(self) { other } else { self }
    }

    pub(crate) fn earlier(self, other: Sequence) -> Sequence {
        if self.is_after(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap() {
        let last = Sequence(u32::MAX);
        assert_eq!(last.plus(3), Sequence(2));
        assert_eq!(Sequence(2).minus(3), last);
        assert!(Sequence(2).is_after(last) && !last.is_after(Sequence(2)));
        assert_eq!((last.until(Sequence(2)), Sequence(2).until(last)), (3, 0));
        assert_eq!(last.later(Sequence(2)), Sequence(2));
        assert_eq!(last.earlier(Sequence(2)), last);
    }
}
