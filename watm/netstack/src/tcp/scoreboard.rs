//! The scoreboard of bytes that the peer has beyond the first gap (RFC 2018), and the gaps to fill
//! (RFC 6675).

use super::segment::Sequence;

/// The most pieces remembered. The content of further ones is retransmitted needlessly.
const MOST: usize = 256;

/// Disjoint pieces beyond the acknowledged bytes, in order, each with its end.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    pieces: Vec<(Sequence, Sequence)>,
}

impl Scoreboard {
    /// Record that the peer has this range.
    pub(super) fn insert(&mut self, start: Sequence, end: Sequence) {
        let first = self.pieces.partition_point(|&(_, e)| start.is_after(e));
        let touched = self.pieces[first..]
            .iter()
            .take_while(|&&(s, _)| !s.is_after(end))
            .count();
        if touched == 0 {
            if self.pieces.len() < MOST {
                self.pieces.insert(first, (start, end));
            }
            return;
        }
        let last = first + touched - 1;
        let merged = (
            start.earlier(self.pieces[first].0),
            end.later(self.pieces[last].1),
        );
        self.pieces.splice(first..=last, [merged]);
    }

    /// Forget everything before this number, which is acknowledged.
    pub(super) fn forget_before(&mut self, start: Sequence) {
        self.pieces.retain(|&(_, end)| end.is_after(start));
        if let Some((first, _)) = self.pieces.first_mut() {
            *first = first.later(start);
        }
    }

    /// The end of the last piece.
    pub(super) fn end(&self) -> Option<Sequence> {
        self.pieces.last().map(|&(_, end)| end)
    }

    /// The bytes of all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|&(s, e)| s.until(e)).sum()
    }

    /// Returns true if the peer has all of this range.
    pub(super) fn covers(&self, start: Sequence, end: Sequence) -> bool {
        let at = self.pieces.partition_point(|&(_, e)| !e.is_after(start));
        let piece = self.pieces.get(at);
        piece.is_some_and(|&(s, e)| !s.is_after(start) && !end.is_after(e))
    }

    /// Returns true if the peer has the byte before this number.
    pub(super) fn reaches(&self, end: Sequence) -> bool {
        self.covers(end.minus(1), end)
    }

    /// The number of bytes in this range that the peer lacks.
    pub(super) fn missing(&self, start: Sequence, end: Sequence) -> usize {
        let within = |&(s, e): &(Sequence, Sequence)| s.later(start).until(e.earlier(end));
        start.until(end) - self.pieces.iter().map(within).sum::<usize>()
    }

    /// The end of the first `bytes` bytes from `start` that the peer lacks.
    pub(super) fn after_missing(&self, start: Sequence, bytes: usize) -> Sequence {
        let (mut at, mut left) = (start, bytes);
        for &(first, end) in &self.pieces {
            let gap = at.until(first);
            if left <= gap {
                break;
            }
            left -= gap;
            at = at.later(end);
        }
        at.plus(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(pieces: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for &(start, end) in pieces {
            board.insert(Sequence(start), Sequence(end));
        }
        board
    }

    fn pieces(board: &Scoreboard) -> Vec<(u32, u32)> {
        board.pieces.iter().map(|(s, e)| (s.0, e.0)).collect()
    }

    #[test]
    fn pieces_that_touch_are_one() {
        assert_eq!(pieces(&board(&[(30, 40), (10, 20)])), [(10, 20), (30, 40)]);
        assert_eq!(pieces(&board(&[(30, 40), (10, 20), (20, 30)])), [(10, 40)]);
        assert_eq!(pieces(&board(&[(30, 40), (10, 20), (5, 50)])), [(5, 50)]);
        assert_eq!(pieces(&board(&[(10, 20), (12, 18)])), [(10, 20)]);
        let wrapped = board(&[(u32::MAX - 9, 10), (10, 20)]);
        assert_eq!(pieces(&wrapped), [(u32::MAX - 9, 20)]);
        assert_eq!(wrapped.bytes(), 30);
    }

    #[test]
    fn what_is_missing_lies_between_them() {
        let mut board = board(&[(10, 20), (30, 40)]);
        assert_eq!(board.missing(Sequence(0), Sequence(50)), 30);
        assert_eq!(board.missing(Sequence(15), Sequence(35)), 10);
        assert_eq!(board.missing(Sequence(35), Sequence(15)), 0);
        assert_eq!(board.after_missing(Sequence(0), 10), Sequence(10));
        assert_eq!(board.after_missing(Sequence(0), 15), Sequence(25));
        assert_eq!(board.after_missing(Sequence(12), 25), Sequence(55));
        assert!(board.covers(Sequence(12), Sequence(20)));
        assert!(!board.covers(Sequence(12), Sequence(21)));
        assert!(board.reaches(Sequence(40)) && !board.reaches(Sequence(41)));
        board.forget_before(Sequence(35));
        assert_eq!(pieces(&board), [(35, 40)]);
    }

    #[test]
    fn pieces_are_bounded() {
        let many: Vec<_> = (0..1000).map(|n| (n * 10, n * 10 + 5)).collect();
        assert_eq!(pieces(&board(&many)).len(), MOST);
    }
}
