//! Reports to the peer on bytes received beyond a gap (RFC 2018), or twice (RFC 2883).
//!
//! smoltcp puts one block into an acknowledgement: the one with the segment that it answers. This module remembers
//! earlier blocks and repeats them, so that the loss of an acknowledgement loses nothing.

use super::segment::Sequence;

/// A block: its first byte, and the byte after its last.
pub(super) type Block = (Sequence, Sequence);

/// The most blocks in one acknowledgement: the options have 40 bytes, and contain no timestamps.
pub(super) const TOLD: usize = 4;
/// The most blocks remembered. smoltcp's assembler has room for as many: see the feature `assembler-max-segment-count`
/// in `Cargo.toml`.
pub(super) const MOST: usize = 32;

/// The blocks to report. It exists while there are any.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Blocks beyond a gap, disjoint, the most recently grown first.
    blocks: Vec<Block>,
    /// A block received twice and not reported yet.
    twice: Option<Block>,
}

impl Arrivals {
    /// Records that these bytes arrived a second time.
    pub(super) fn note_twice(&mut self, block: Block) {
        self.twice = Some(block);
    }

    /// The part of these bytes that is already in a block.
    pub(super) fn known(&self, (start, end): Block) -> Option<Block> {
        let parts = self.blocks.iter();
        let mut parts = parts.map(|&(s, e)| (s.later(start), e.earlier(end)));
        parts.find(|&(start, end)| end.is_after(start))
    }

    /// Returns true if the assembler has room for these bytes, which begin beyond a gap.
    pub(super) fn has_room(&self, (start, end): Block) -> bool {
        let touches = |&(s, e): &Block| !s.is_after(end) && !start.is_after(e);
        self.blocks.len() < MOST || self.blocks.iter().any(touches)
    }

    /// Records a block that smoltcp reports, with all bytes adjacent to it. `answers`: it contains the segment that is
    /// answered.
    pub(super) fn note(&mut self, block: Block, answers: bool) {
        let (start, end) = block;
        if !answers && self.blocks.contains(&block) {
            return;
        }
        self.blocks
            .retain(|&(s, e)| s.is_after(end) || start.is_after(e));
        match answers {
            true => self.blocks.insert(0, block),
            false => self.blocks.push(block),
        }
        self.blocks.truncate(MOST);
    }

    /// Forgets blocks before this number, which is acknowledged.
    pub(super) fn forget_before(&mut self, acknowledged: Sequence) {
        self.blocks.retain(|&(_, end)| end.is_after(acknowledged));
    }

    /// The blocks of the next acknowledgement, in their order.
    pub(super) fn tell(&mut self) -> impl Iterator<Item = Block> {
        let twice = self.twice.take();
        twice
            .into_iter()
            .chain(self.blocks.iter().copied())
            .take(TOLD)
    }

    /// Returns true if there is nothing left to report.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.twice.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u32, end: u32) -> Block {
        (Sequence(start), Sequence(end))
    }

    fn told(arrivals: &mut Arrivals) -> Vec<(u32, u32)> {
        arrivals.tell().map(|(s, e)| (s.0, e.0)).collect()
    }

    #[test]
    fn the_block_that_grew_last_comes_first() {
        let mut arrivals = Arrivals::default();
        for start in [10, 30, 50, 70, 90] {
            arrivals.note(block(start, start + 5), true);
        }
        assert_eq!(
            told(&mut arrivals),
            [(90, 95), (70, 75), (50, 55), (30, 35)]
        );
        // Two become one.
        arrivals.note(block(30, 55), true);
        assert_eq!(
            told(&mut arrivals),
            [(30, 55), (90, 95), (70, 75), (10, 15)]
        );
        // The first is acknowledged; smoltcp reports the next block, which has not grown.
        arrivals.forget_before(Sequence(20));
        arrivals.note(block(30, 55), false);
        assert_eq!(told(&mut arrivals), [(30, 55), (90, 95), (70, 75)]);
        arrivals.note(block(70, 75), false);
        assert_eq!(told(&mut arrivals), [(30, 55), (90, 95), (70, 75)]);
        arrivals.forget_before(Sequence(95));
        assert!(arrivals.is_empty());
    }

    #[test]
    fn what_came_twice_is_told_once_and_first() {
        let mut arrivals = Arrivals::default();
        arrivals.note(block(30, 40), true);
        assert_eq!(arrivals.known(block(35, 60)), Some(block(35, 40)));
        assert_eq!(arrivals.known(block(40, 60)), None);
        arrivals.note_twice(block(35, 40));
        assert_eq!(told(&mut arrivals), [(35, 40), (30, 40)]);
        assert_eq!(told(&mut arrivals), [(30, 40)]);
    }

    #[test]
    fn there_is_no_room_for_more_blocks_than_the_assembler_takes() {
        let mut arrivals = Arrivals::default();
        for number in 0..40 {
            arrivals.note(block(number * 10, number * 10 + 5), true);
        }
        assert_eq!(arrivals.blocks.len(), MOST);
        assert!(!arrivals.has_room(block(396, 399)));
        assert!(arrivals.has_room(block(395, 399)));
    }

    #[test]
    fn numbers_wrap() {
        let mut arrivals = Arrivals::default();
        arrivals.note(block(u32::MAX - 4, 5), true);
        arrivals.note(block(20, 30), true);
        assert_eq!(arrivals.known(block(0, 3)), Some(block(0, 3)));
        arrivals.forget_before(Sequence(u32::MAX));
        assert_eq!(told(&mut arrivals), [(20, 30), (u32::MAX - 4, 5)]);
        arrivals.forget_before(Sequence(5));
        assert_eq!(told(&mut arrivals), [(20, 30)]);
    }
}
