//! Undoing a loss or a timeout that turns out to be wrong, because packets were late or reordered
//! (RFC 5682, RFC 3522, RFC 3708).

use super::{MOST_QUEUED, Transmitter};
use crate::tcp::congestion::{Phase, Undo};
use crate::tcp::sequence::{Block, Sequence};

/// Bytes that were marked as lost and may not be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// The bytes that are not known to have arrived without a retransmission.
    lost: usize,
    /// The bytes that have, and whose retransmissions the peer has not reported as duplicates yet.
    unreported: u32,
    /// The range that was retransmitted.
    from: Sequence,
    to: Sequence,
    /// The end of all bytes sent then. Once the peer has acknowledged it, it has reported all its
    /// duplicates.
    told_by: Sequence,
}

/// A timeout that may be spurious, and the acknowledgements since from a peer that is not
/// selective. The second one reveals that nothing was lost, if it covers bytes that were not sent
/// again (RFC 5682 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpuriousTimeout {
    Unanswered,
    /// One has advanced, and nothing was sent again since.
    AnsweredOnce,
    /// The next ones reveal nothing.
    Ambiguous,
}

impl SpuriousTimeout {
    /// Records an acknowledgement. Returns true if it reveals that the timeout was spurious.
    /// `unrepeated` bytes of it were not sent again.
    pub(super) fn answered(&mut self, advances: bool, unrepeated: usize) -> bool {
        let second = *self == Self::AnsweredOnce && advances;
        *self = match self {
            Self::Unanswered | Self::AnsweredOnce if advances => Self::AnsweredOnce,
            _ => Self::Ambiguous,
        };
        second && unrepeated > 0
    }

    /// Records a retransmission.
    pub(super) fn sent_again(&mut self) {
        if *self == Self::AnsweredOnce {
            *self = Self::Ambiguous;
        }
    }
}

impl Transmitter {
    /// Records that `bytes` were marked as lost. After a timeout they are but a part of what was
    /// lost, which nothing tells apart.
    pub(super) fn doubt_lost(&mut self, bytes: usize) {
        if self.phase == Phase::Timeout {
            return;
        }
        let (una, next) = (self.una, self.next);
        let begins = self.phase == Phase::Open;
        self.doubt
            .take_if(|doubt| begins && !doubt.told_by.is_after(una));
        let doubt = self.doubt.get_or_insert(Doubt {
            lost: 0,
            unreported: 0,
            from: una,
            to: una,
            told_by: next,
        });
        doubt.lost += bytes;
    }

    /// Records a retransmission. `unmarked` of its bytes were not marked as lost, as in a tail loss
    /// probe: reports of their duplicates prove nothing about the others.
    pub(super) fn doubt_sent_again(&mut self, (start, end): Block, unmarked: usize) {
        let next = self.next;
        if let Some(timeout) = &mut self.spurious {
            timeout.sent_again();
        }
        if let Some(doubt) = &mut self.doubt {
            doubt.from = doubt.from.earlier(start);
            doubt.to = doubt.to.later(end);
            doubt.told_by = next;
            doubt.lost += unmarked;
        }
    }

    /// Records that bytes came late, whose retransmission the peer is going to report.
    pub(super) fn expect_duplicates(&mut self, bytes: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.unreported = doubt.unreported.saturating_add(bytes as u32);
        }
    }

    /// Records that the peer received a range twice (RFC 2883).
    pub(super) fn note_duplicate(&mut self, (start, end): Block) {
        let Some(doubt) = &mut self.doubt else {
            return;
        };
        let twice = start.later(doubt.from).until(end.earlier(doubt.to));
        if twice == 0 {
            return;
        }
        // A late segment counts once.
        let counted = twice.min(doubt.unreported as usize);
        doubt.unreported -= counted as u32;
        self.rack.needless(self.una, self.next);
        if self.not_lost(twice - counted) {
            self.rack.needless_recovery();
        }
    }

    /// Forgets state that SND.UNA has passed, before sequence numbers wrap and it lies ahead again.
    pub(super) fn forget_passed(&mut self) {
        let una = self.una;
        self.rack.passed(una);
        // Reordered duplicates may still be reported: all that was in flight with them passes too.
        self.doubt
            .take_if(|doubt| una.is_after(doubt.told_by.plus(MOST_QUEUED)));
    }

    /// Takes back the loss of these bytes. Returns true if they were the last of all that were
    /// marked as lost, which undoes the recovery.
    pub(super) fn not_lost(&mut self, bytes: usize) -> bool {
        self.rate.not_lost(bytes);
        let Some(doubt) = &mut self.doubt else {
            return false;
        };
        doubt.lost = doubt.lost.saturating_sub(bytes);
        if doubt.lost > 0 || self.phase == Phase::Timeout {
            return false;
        }
        self.doubt = None;
        self.undo(bytes);
        true
    }

    /// Undoes a timeout, because bytes arrived that were not retransmitted after it (RFC 5682), or
    /// whose retransmission the acknowledgement precedes (RFC 3522). Segments that became shorter
    /// stay so until a probe shows that longer ones pass: the acknowledgement may be that of a
    /// shorter one.
    pub(super) fn undo_timeout(&mut self) {
        if self.phase != Phase::Timeout {
            return;
        }
        self.spurious = None;
        let lost = self.outstanding.lost();
        self.outstanding.find_all();
        self.rate.not_lost(lost);
        self.undo(lost);
    }

    /// Forgets what might be undone, because bytes are sent again for another reason than a loss:
    /// their arrival proves nothing.
    pub(super) fn forget_doubts(&mut self) {
        self.doubt = None;
        self.spurious = None;
    }

    fn undo(&mut self, not_lost: usize) {
        self.phase = Phase::Open;
        self.undone_at = Some(self.una);
        self.duplicates = 0;
        self.reductions.undone();
        self.congestion.on_undo(&Undo { not_lost });
    }
}
