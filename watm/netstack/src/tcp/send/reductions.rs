//! The report of a smaller congestion window to a peer that echoes congestion (CWR of RFC 3168
//! section 6.1.2).

use crate::tcp::sequence::Sequence;

/// The reductions of the congestion window, of which the next new segment tells the peer.
#[derive(Debug)]
pub(super) struct Reductions {
    /// The reason of one that was not reported yet.
    due: Option<Reason>,
    /// The number after the first byte of the last segment with CWR. Echoes before its
    /// acknowledgement belong to the window that was reduced.
    reported_end: Sequence,
}

/// The reason to reduce the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A loss or a timeout, which may turn out to be spurious.
    Loss,
    /// An echo of congestion.
    Echo,
}

impl Reductions {
    pub(super) fn new(first: Sequence) -> Self {
        Reductions {
            due: None,
            reported_end: first,
        }
    }

    /// Returns true if the next new segment has a report.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Records that losses reduced the window.
    pub(super) fn lost(&mut self) {
        self.due.get_or_insert(Reason::Loss);
    }

    /// Records that the losses were spurious.
    pub(super) fn undone(&mut self) {
        self.due.take_if(|reason| *reason == Reason::Loss);
    }

    /// Records an echo, with everything before `una` acknowledged. Returns true if no reduction has
    /// answered it. A reduction that is still due then survives an undo.
    pub(super) fn echoed(&mut self, una: Sequence) -> bool {
        let is_new = !self.is_due() && !self.reported_end.is_after(una);
        if is_new || self.is_due() {
            self.due = Some(Reason::Echo);
        }
        is_new
    }

    /// Records a report that begins at this number.
    pub(super) fn reported(&mut self, start: Sequence) {
        self.due = None;
        self.reported_end = start.plus(1);
    }

    /// Records an acknowledgement. Keeps `reported_end` from lying ahead again when numbers wrap.
    pub(super) fn acknowledged(&mut self, una: Sequence) {
        self.reported_end = self.reported_end.later(una);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_new_once_in_a_window_of_data() {
        let mut reductions = Reductions::new(Sequence(1));
        assert!(reductions.echoed(Sequence(1001)));
        assert!(!reductions.echoed(Sequence(2001)), "not reported yet");
        reductions.reported(Sequence(5001));
        for una in [3001, 5001] {
            reductions.acknowledged(Sequence(una));
            assert!(!reductions.echoed(Sequence(una)), "{una}");
        }
        assert!(!reductions.is_due());
        reductions.acknowledged(Sequence(5002));
        assert!(reductions.echoed(Sequence(5002)));
    }

    #[test]
    fn an_echo_keeps_a_reduction_that_an_undo_would_take_back() {
        let mut reductions = Reductions::new(Sequence(1));
        reductions.lost();
        reductions.undone();
        assert!(!reductions.is_due());
        reductions.lost();
        assert!(!reductions.echoed(Sequence(1)), "the loss answers it");
        reductions.undone();
        assert!(reductions.is_due());
    }
}
