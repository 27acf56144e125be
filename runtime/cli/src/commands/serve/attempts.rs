//! The pace of a listener's connections to upstreams that do not answer. `upstream` begins each
//! attempt here.
//!
//! The kernel repeats the SYN of an unanswered attempt after a second, in an interrupt, and bundles
//! the timers of 64 ms. Thousands of attempts at once would hold up everything else on a core for
//! milliseconds each time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// The attempts that may be unanswered at once without a wait. A burst to an upstream that answers
/// needs no more, since each answer makes room for another one.
const UNANSWERED: usize = 256;

/// The time from one attempt beyond them to the next one.
const PACE: Duration = Duration::from_micros(500);

/// The attempts of a listener.
pub(super) struct Attempts {
    free: Semaphore,
    /// The time of the last attempt that has a turn.
    last: Mutex<Instant>,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            free: Semaphore::new(UNANSWERED),
            last: Mutex::new(Instant::now()),
        }
    }
}

impl Attempts {
    /// Waits for a place or for a turn, whichever comes first. The place, if any, must be kept until
    /// the attempt has ended.
    pub(super) async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.free.try_acquire() {
            return Some(place);
        }
        let turn = self.turn(Instant::now());
        tokio::select! {
            place = self.free.acquire() => place.ok(),
            () = sleep_until(turn) => None,
        }
    }

    /// Returns the next turn.
    fn turn(&self, now: Instant) -> Instant {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = now.max(*last + PACE);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_makes_room_for_an_attempt() {
        let attempts = Attempts::default();
        let mut open = Vec::new();
        for _ in 0..UNANSWERED {
            open.push(attempts.begin().await);
        }
        assert!(open.iter().all(Option::is_some));
        // The next ones come by their turns.
        for _ in 0..3 {
            open.push(attempts.begin().await);
        }
        assert!(open.pop().is_some_and(|last| last.is_none()));
        open.remove(0);
        assert!(attempts.begin().await.is_some());
    }

    #[test]
    fn turns_follow_each_other_at_a_pace() {
        let attempts = Attempts::default();
        let now = Instant::now() + PACE;
        let turns: Vec<Instant> = (0..3).map(|_| attempts.turn(now)).collect();
        assert_eq!(turns, [now, now + PACE, now + 2 * PACE]);
        // A pause saves none.
        let later = now + Duration::from_secs(60);
        assert_eq!(attempts.turn(later), later);
        assert_eq!(attempts.turn(later), later + PACE);
    }
}
