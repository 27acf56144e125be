//! Runs: segments of one flow that arrive one after another and differ in their payload alone, as
//! those of a bulk transfer do. [`Tcp`](super::Tcp) handles the first of a run in full, and of the
//! others no more than the payload, so that a batch passes the state machine as one long segment.
//! No bytes are copied for that, and each segment counts for the next acknowledgement (RFC 5681
//! section 4.2).

use super::emit::Flags;
use super::options::Timestamp;
use super::segment::Segment;
use super::sequence::Sequence;
use crate::table::{FlowId, Key};

/// A run in progress. Another packet, or the end of the batch, ends it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: FlowId,
    key: Key,
    /// The number of the next segment.
    next: Sequence,
    acknowledges: Sequence,
    window: u16,
    timestamp: Option<Timestamp>,
}

impl Run {
    /// Begins a run with a segment that was handled in full. `None` if it has anything that the
    /// others of a run do not.
    pub(super) fn after(id: FlowId, key: &Key, segment: &Segment<'_>) -> Option<Run> {
        is_plain(segment).then_some(Run {
            id,
            key: *key,
            next: segment.payload_end(),
            acknowledges: segment.acknowledges?,
            window: segment.window,
            timestamp: segment.options.timestamp,
        })
    }

    /// Returns true if the segment continues the run.
    pub(super) fn is_continued_by(&self, key: &Key, segment: &Segment<'_>) -> bool {
        segment.sequence == self.next
            && segment.acknowledges == Some(self.acknowledges)
            && segment.window == self.window
            && segment.options.timestamp == self.timestamp
            && is_plain(segment)
            && *key == self.key
    }

    /// Records that a segment continued it.
    pub(super) fn go_on(&mut self, segment: &Segment<'_>) {
        self.next = segment.payload_end();
    }
}

/// Returns true if a segment has a payload, an acknowledgement, and nothing else that takes effect.
/// A mark of congestion counts for its packet alone (RFC 3168 section 6.1.3).
fn is_plain(segment: &Segment<'_>) -> bool {
    segment.flags.0 & !Flags::PSH.0 == Flags::ACK.0
        && !segment.payload.is_empty()
        && !segment.marked
        && segment.options.blocks().is_empty()
}
