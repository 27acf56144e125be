//! The newest accepted initiations of a peer. Neither they nor older ones may be accepted again.
//! Used throughout the crate.

use crate::handshake_time::Timestamp;

/// The part of an initiation that only its sender can make: its ephemeral key, its encrypted static
/// key and its encrypted timestamp. The rest of the message is an index and two MACs.
pub type Initiation = [u8; 108];

/// The most initiations kept for a peer. Each comes from a generation that accepted it. If there
/// are more, only the newest is kept.
pub const MAX_INITIATIONS: usize = 4;

/// The lasting part of an initiation message. `None` if the message is too short.
pub fn initiation(message: &[u8]) -> Option<&Initiation> {
    message.get(8..)?.first_chunk()
}

/// The initiations that a peer's next one must be newer than.
///
/// An accepted initiation is kept as it came, because reading its timestamp costs two key
/// exchanges. Most timestamps are never needed, neither when the next generation starts nor in it.
#[derive(Debug, Clone, Default)]
pub struct Floor {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    initiation: Initiation,
    /// True if the tunnel in use has accepted it, and checks against it itself.
    checked: bool,
    /// The generation that reported it, unless it was in a snapshot.
    from: Option<u32>,
}

impl Floor {
    /// Record that the tunnel in use has accepted this one, which is thus newer than all others.
    pub fn accepted(&mut self, initiation: Initiation) {
        self.entries.clear();
        self.entries.push(Entry {
            initiation,
            checked: true,
            from: None,
        });
    }

    /// Record that another generation has accepted this one: either `from`, which serves at the
    /// moment and reports each that it accepts, or the maker of a snapshot. Calls `time` if there
    /// are too many.
    pub fn inherit(
        &mut self,
        initiation: Initiation,
        from: Option<u32>,
        time: impl Fn(&Initiation) -> Option<Timestamp>,
    ) {
        if self.entries.iter().any(|e| e.initiation == initiation) {
            return;
        }
        if from.is_some() {
            // The tunnel of that generation accepts only newer ones.
            self.entries.retain(|entry| entry.from != from);
        }
        self.entries.push(Entry {
            initiation,
            checked: false,
            from,
        });
        if self.entries.len() > MAX_INITIATIONS {
            self.collapse(time);
        }
    }

    /// Mark all as unchecked: a new tunnel has accepted nothing yet.
    pub fn disown(&mut self) {
        for entry in &mut self.entries {
            entry.checked = false;
        }
    }

    /// Returns true if an initiation may be shown to the tunnel: it is newer than all those that
    /// the tunnel does not know. An initiation without a readable time passes, and the tunnel
    /// refuses it.
    pub fn admits(
        &mut self,
        initiation: &Initiation,
        time: impl Fn(&Initiation) -> Option<Timestamp>,
    ) -> bool {
        if self.entries.iter().all(|entry| entry.checked) {
            return true;
        }
        if self.entries.iter().any(|e| e.initiation == *initiation) {
            return false;
        }
        let Some(new) = time(initiation) else {
            return true;
        };
        let floor = self.collapse(&time);
        floor.is_none_or(|floor| new > floor)
    }

    /// The initiations that a later generation must know.
    pub fn initiations(&self) -> Vec<Initiation> {
        self.entries.iter().map(|entry| entry.initiation).collect()
    }

    /// Keep only the newest, and return its time.
    fn collapse(&mut self, time: impl Fn(&Initiation) -> Option<Timestamp>) -> Option<Timestamp> {
        let timed = self
            .entries
            .drain(..)
            .filter_map(|entry| Some((time(&entry.initiation)?, entry)));
        let (newest, entry) = timed.max_by_key(|(time, _)| *time)?;
        self.entries.push(entry);
        Some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u8) -> Initiation {
        [time; 108]
    }

    fn time(initiation: &Initiation) -> Option<Timestamp> {
        // 0 stands for an initiation that does not decrypt.
        (initiation[0] != 0).then_some([initiation[0]; 12])
    }

    #[test]
    fn only_newer_ones_pass_a_floor() {
        let mut floor = Floor::default();
        assert!(floor.admits(&at(1), time));
        floor.inherit(at(5), None, time);
        floor.inherit(at(3), None, time);
        floor.inherit(at(0), None, time);
        let mut timeless = at(0);
        timeless[1] = 1;
        let tries = [1, 3, 5, 0].map(|again| (at(again), false));
        for (initiation, passes) in tries.into_iter().chain([(at(6), true), (timeless, true)]) {
            assert_eq!(floor.clone().admits(&initiation, time), passes);
        }
        // The tunnel knows the initiation that it accepted, and refuses older ones.
        floor.accepted(at(6));
        assert!(floor.admits(&at(2), time));
        floor.disown();
        assert!(!floor.admits(&at(2), time));
    }

    #[test]
    fn not_more_are_kept_than_fit() {
        let mut floor = Floor::default();
        for time_of in [4, 9, 2, 7, 3, 1, 8, 5] {
            floor.inherit(at(time_of), None, time);
            assert!(floor.initiations().len() <= MAX_INITIATIONS);
        }
        assert!(!floor.admits(&at(9), time) && !floor.admits(&at(6), time));
        assert_eq!(floor.initiations(), [at(9)]);
        assert!(floor.admits(&at(10), time));
    }

    #[test]
    fn what_one_generation_tells_takes_one_place() {
        let mut floor = Floor::default();
        floor.inherit(at(200), None, time);
        for time_of in 1..100 {
            floor.inherit(at(time_of), Some(1), |_| panic!("no time is asked for"));
        }
        assert_eq!(floor.initiations(), [at(200), at(99)]);
        assert!(!floor.admits(&at(150), time));
    }
}
