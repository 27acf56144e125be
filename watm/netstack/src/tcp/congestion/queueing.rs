//! The sign of a queue that all algorithms use: a round trip longer than the least one.

use core::time::Duration;

/// The bounds of the queueing delay that counts. Within them, it is an eighth of the least round
/// trip (`MIN_RTT_THRESH` and `MAX_RTT_THRESH`, RFC 9406 section 4.3).
const LEAST: Duration = Duration::from_millis(4);
const MOST: Duration = Duration::from_millis(16);

/// Returns true if a round trip that `took` this long waited in a queue, on a path whose least
/// round trip is `least`.
pub(super) fn waited(took: Duration, least: Duration) -> bool {
    took > least.saturating_add((least / 8).clamp(LEAST, MOST))
}
