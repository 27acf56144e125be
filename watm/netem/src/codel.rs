//! CoDel, which drops packets of a queue that stays too long (RFC 8289). Used by `lane`.

/// The acceptable time in the queue, in nanoseconds.
const TARGET: u64 = 5_000_000;

/// The time for which a queue may be longer, in nanoseconds.
const INTERVAL: u64 = 100_000_000;

/// The state of one queue, with the names of the RFC.
#[derive(Default)]
pub(crate) struct Codel {
    /// The time at which a queue that is too long will have been so for an interval.
    first_above: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Returns true if a packet that leaves the queue at `now`, after `sojourn`, is dropped. `more`
    /// is true if another one waits behind it. Times are in nanoseconds.
    pub(crate) fn drops(&mut self, now: u64, sojourn: u64, more: bool) -> bool {
        if !self.is_too_long(now, sojourn, more) {
            self.dropping = false;
            return false;
        }
        if !self.dropping {
            self.begin(now);
            return true;
        }
        if now < self.drop_next {
            return false;
        }
        self.count += 1;
        self.drop_next = self.law(self.drop_next);
        true
    }

    fn is_too_long(&mut self, now: u64, sojourn: u64, more: bool) -> bool {
        if sojourn < TARGET || !more {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + INTERVAL)
    }

    /// Begins to drop, and goes on at the former rate if it did so shortly before.
    fn begin(&mut self, now: u64) {
        let drops = self.count - self.last_count;
        let recently = now.saturating_sub(self.drop_next) < 16 * INTERVAL;
        self.count = if drops > 1 && recently { drops } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.drop_next = self.law(now);
    }

    /// Returns the time of the drop after one at `time`.
    fn law(&self, time: u64) -> u64 {
        time + (INTERVAL as f64 / f64::from(self.count).sqrt()) as u64
    }
}
