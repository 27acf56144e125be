//! The bytes received beyond a gap, and the reports on them (RFC 2018), and on bytes received twice
//! (RFC 2883).
//!
//! An acknowledgement reports the most recent blocks, and repeats earlier ones, so that the loss of
//! an acknowledgement loses nothing.

use crate::tcp::sequence::{Block, Sequence};

/// The most blocks remembered. Segments beyond more gaps are dropped. 256 blocks suffice for 700 KB
/// of which every second full segment is missing. The search through them takes 2 µs.
pub(super) const MOST: usize = 256;

/// The blocks beyond a gap. It exists while there are blocks or a duplicate to report.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Disjoint blocks that touch nothing, the most recently grown first.
    blocks: Vec<Block>,
    /// A block received twice and not reported yet.
    twice: Option<Block>,
}

impl Arrivals {
    /// Records that these bytes arrived a second time.
    pub(super) fn note_twice(&mut self, block: Block) {
        self.twice = Some(block);
    }

    /// Returns true if a duplicate was not reported yet.
    pub(super) fn has_unreported_duplicate(&self) -> bool {
        self.twice.is_some()
    }

    /// The first part of these bytes that is already in a block (RFC 2883 section 4).
    pub(super) fn known(&self, (start, end): Block) -> Option<Block> {
        let parts = self.blocks.iter();
        let parts = parts.map(|&(s, e)| (s.later(start), e.earlier(end)));
        let parts = parts.filter(|&(start, end)| end.is_after(start));
        parts.min_by_key(|part| start.until(part.0))
    }

    /// Returns true if there is room for these bytes, which begin beyond a gap.
    pub(super) fn has_room(&self, block: Block) -> bool {
        self.blocks.len() < MOST || self.blocks.iter().any(|known| touch(known, &block))
    }

    /// Records bytes beyond a gap.
    pub(super) fn insert(&mut self, block: Block) {
        let mut whole = block;
        self.blocks.retain(|known| {
            let touches = touch(known, &block);
            if touches {
                whole = (whole.0.earlier(known.0), whole.1.later(known.1));
            }
            !touches
        });
        self.blocks.insert(0, whole);
    }

    /// Takes the blocks that follow `next` without a gap. Returns the end of them.
    pub(super) fn take_from(&mut self, next: Sequence) -> Sequence {
        let mut end = next;
        while let Some(at) = self
            .blocks
            .iter()
            .position(|&(start, _)| !start.is_after(end))
        {
            let (_, last) = self.blocks.remove(at);
            end = end.later(last);
        }
        end
    }

    /// The blocks of the next acknowledgement, in their order, at most this many.
    pub(super) fn tell(&mut self, most: usize) -> impl Iterator<Item = Block> {
        let twice = self.twice.take();
        twice
            .into_iter()
            .chain(self.blocks.iter().copied())
            .take(most)
    }

    /// Returns true if no bytes are beyond a gap.
    pub(super) fn has_no_blocks(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns true if there is nothing left to report.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.twice.is_none()
    }
}

/// Returns true if two blocks overlap or adjoin.
fn touch(&(start, end): &Block, &(other_start, other_end): &Block) -> bool {
    !start.is_after(other_end) && !other_start.is_after(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::options::BLOCKS;

    fn block(start: u32, end: u32) -> Block {
        (Sequence(start), Sequence(end))
    }

    fn told(arrivals: &mut Arrivals) -> Vec<(u32, u32)> {
        arrivals.tell(BLOCKS).map(|(s, e)| (s.0, e.0)).collect()
    }

    #[test]
    fn the_block_that_grew_last_comes_first() {
        let mut arrivals = Arrivals::default();
        for start in [10, 30, 50, 70, 90] {
            arrivals.insert(block(start, start + 5));
        }
        assert_eq!(
            told(&mut arrivals),
            [(90, 95), (70, 75), (50, 55), (30, 35)]
        );
        // Two become one.
        arrivals.insert(block(35, 50));
        assert_eq!(
            told(&mut arrivals),
            [(30, 55), (90, 95), (70, 75), (10, 15)]
        );
        // The first gap is filled.
        assert_eq!(arrivals.take_from(Sequence(9)), Sequence(9));
        assert_eq!(arrivals.take_from(Sequence(10)), Sequence(15));
        assert_eq!(told(&mut arrivals), [(30, 55), (90, 95), (70, 75)]);
        assert_eq!(arrivals.take_from(Sequence(80)), Sequence(80));
        assert_eq!(told(&mut arrivals), [(90, 95)]);
        assert!(!arrivals.is_empty());
        assert_eq!(arrivals.take_from(Sequence(90)), Sequence(95));
        assert!(arrivals.is_empty());
    }

    #[test]
    fn what_came_twice_is_told_once_and_first() {
        let mut arrivals = Arrivals::default();
        arrivals.insert(block(30, 40));
        assert_eq!(arrivals.known(block(35, 60)), Some(block(35, 40)));
        assert_eq!(arrivals.known(block(40, 60)), None);
        arrivals.note_twice(block(35, 40));
        assert_eq!(told(&mut arrivals), [(35, 40), (30, 40)]);
        assert_eq!(told(&mut arrivals), [(30, 40)]);
    }

    #[test]
    fn the_first_part_that_came_twice_counts() {
        let mut arrivals = Arrivals::default();
        for start in [30, 10, 50] {
            arrivals.insert(block(start, start + 10));
        }
        assert_eq!(arrivals.known(block(5, 60)), Some(block(10, 20)));
        assert_eq!(arrivals.known(block(20, 60)), Some(block(30, 40)));
    }

    #[test]
    fn there_are_no_more_blocks_than_there_is_room_for() {
        let mut arrivals = Arrivals::default();
        for number in 0..256 {
            arrivals.insert(block(number * 10, number * 10 + 5));
        }
        assert!(!arrivals.has_room(block(2636, 2639)));
        assert!(arrivals.has_room(block(2555, 2559)));
    }

    #[test]
    fn numbers_wrap() {
        let mut arrivals = Arrivals::default();
        arrivals.insert(block(u32::MAX - 4, 5));
        arrivals.insert(block(20, 30));
        assert_eq!(arrivals.known(block(0, 3)), Some(block(0, 3)));
        assert_eq!(told(&mut arrivals), [(20, 30), (u32::MAX - 4, 5)]);
        assert_eq!(arrivals.take_from(Sequence(u32::MAX)), Sequence(5));
        assert_eq!(told(&mut arrivals), [(20, 30)]);
    }
}
