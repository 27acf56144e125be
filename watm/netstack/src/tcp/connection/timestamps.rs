//! Timestamps, and the protection against old segments (RFC 7323).

use core::time::Duration;

use watm_core::Instant;

use super::Connection;
use crate::tcp::clocks::Clocks;
use crate::tcp::options::Timestamp;
use crate::tcp::segment::Segment;

/// The time after which a segment can no longer have overtaken another.
const OVERTAKING: Duration = Duration::from_secs(1);
/// The time after which a remembered timestamp no longer counts (RFC 7323 section 5.5).
const OLD: Duration = Duration::from_secs(24 * 24 * 3600);

/// The timestamps of a connection whose ends both use them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timestamps {
    pub(super) clocks: Clocks,
    /// The time when the last timestamp of the peer came.
    pub(super) recent_at: Instant,
}

impl Connection {
    /// The timestamp of a segment that leaves now.
    pub(super) fn timestamp(&self, now: Instant) -> Option<Timestamp> {
        let timestamps = self.timestamps.as_ref();
        timestamps.map(|timestamps| timestamps.clocks.timestamp(now))
    }

    /// Checks a segment against older ones (RFC 7323 sections 3.2 and 5.3). Demands an
    /// acknowledgement for an old duplicate, and returns false.
    pub(super) fn check_timestamp(&mut self, segment: &Segment<'_>, now: Instant) -> bool {
        let Some(timestamps) = &self.timestamps else {
            return true;
        };
        if segment.resets() {
            return true;
        }
        let Some(timestamp) = segment.options.timestamp else {
            // Keep-alives of macOS have none.
            if self.is_bare_probe(segment) {
                self.answer_probe(now);
            }
            return false;
        };
        let old = timestamps.clocks.is_old(timestamp) && now < timestamps.recent_at + OLD;
        if old && segment.length() == 0 {
            // Reordering makes many of them, and each answer would count as a duplicate
            // acknowledgement.
            self.correct(now);
        } else if old {
            self.receiver.acknowledge();
        }
        !old
    }

    /// Remembers the timestamp of a repetition that comes long after the last segment. Otherwise
    /// the answer would echo the first transmission, and the peer would measure its own timeout as
    /// a round trip. Soon after a segment, the change could make segments on their way count as
    /// old.
    pub(super) fn remember_repetition(&mut self, segment: &Segment<'_>, now: Instant) {
        let late = |timestamps: &Timestamps| now >= timestamps.recent_at + OVERTAKING;
        let recent = self.receiver.is_recent(segment.sequence);
        if recent && self.timestamps.as_ref().is_some_and(late) {
            self.remember(segment, now);
        }
    }

    /// Remembers the timestamp of an acceptable segment (RFC 7323 section 4.3). One from an
    /// attacker could keep out all that follow. Therefore the acknowledgement is checked before
    /// (RFC 5961 section 5.2).
    pub(super) fn remember(&mut self, segment: &Segment<'_>, now: Instant) {
        let (Some(timestamps), Some(timestamp)) = (&mut self.timestamps, segment.options.timestamp)
        else {
            return;
        };
        let newer = !timestamps.clocks.is_old(timestamp);
        let stale = now >= timestamps.recent_at + OLD;
        if (newer || stale) && !segment.sequence.is_after(self.receiver.told()) {
            timestamps.clocks.recent = timestamp.value;
            timestamps.recent_at = now;
        }
    }
}
