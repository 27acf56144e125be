//! The rate of log records of connections that end. `carry` asks before it writes one.
//!
//! Clients and modules choose how often connections end, so the rate bounds the growth of the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of seconds' worth of records that may come in one burst.
const BURST_SECONDS: f64 = 10.0;

/// The least time between two announcements of omitted records.
const BETWEEN: Duration = Duration::from_secs(1);

/// The rate of a listener's records.
pub(super) struct Records(Mutex<State>);

struct State {
    /// Records of the burst that are spent.
    spent: f64,
    updated: Instant,
    /// Records omitted since the last announcement.
    omitted: u64,
    announced: Option<Instant>,
}

/// The answer to one record.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Write the record.
    Write,
    /// Write it, and announce that this many others were omitted.
    Announce(u64),
    /// Omit the record.
    Omit,
}

impl Records {
    /// Decides on a record, of which there may be `per_second`.
    pub(super) fn admit(&self, per_second: usize) -> Verdict {
        let mut state = self.0.lock().expect("no panic under this lock");
        state.admit(per_second as f64, Instant::now())
    }
}

impl Default for Records {
    fn default() -> Records {
        Records(Mutex::new(State {
            spent: 0.0,
            updated: Instant::now(),
            omitted: 0,
            announced: None,
        }))
    }
}

impl State {
    fn admit(&mut self, per_second: f64, now: Instant) -> Verdict {
        let regained = now.duration_since(self.updated).as_secs_f64() * per_second;
        self.updated = now;
        self.spent = (self.spent - regained).max(0.0);
        if self.spent + 1.0 > per_second * BURST_SECONDS {
            self.omitted += 1;
            return Verdict::Omit;
        }
        self.spent += 1.0;
        let is_due = |announced| now.duration_since(announced) >= BETWEEN;
        if self.omitted == 0 || !self.announced.is_none_or(is_due) {
            return Verdict::Write;
        }
        self.announced = Some(now);
        Verdict::Announce(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(began: Instant) -> State {
        State {
            spent: 0.0,
            updated: began,
            omitted: 0,
            announced: None,
        }
    }

    /// Returns the numbers of written and announced records among `many` at one time.
    fn written(state: &mut State, many: usize, now: Instant) -> (usize, u64) {
        let verdicts = (0..many).map(|_| state.admit(5.0, now));
        verdicts.fold((0, 0), |(written, announced), verdict| match verdict {
            Verdict::Write => (written + 1, announced),
            Verdict::Announce(more) => (written + 1, announced + more),
            Verdict::Omit => (written, announced),
        })
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let began = Instant::now();
        let mut state = state(began);
        let after = |millis| began + Duration::from_millis(millis);
        assert_eq!(written(&mut state, 200, began), (50, 0));
        assert_eq!(written(&mut state, 200, after(2000)), (10, 150));
        // Announcements have a rate too.
        assert_eq!(written(&mut state, 200, after(2900)), (4, 0));
        assert_eq!(written(&mut state, 200, after(3200)), (2, 190 + 196));
        // Rest gives no more than a burst.
        assert_eq!(written(&mut state, 200, after(1_000_000)), (50, 198));
    }

    #[test]
    fn another_rate_holds_at_once() {
        let began = Instant::now();
        let mut state = state(began);
        written(&mut state, 50, began);
        assert_eq!(state.admit(5.0, began), Verdict::Omit);
        assert_eq!(state.admit(100.0, began), Verdict::Announce(1));
    }
}
