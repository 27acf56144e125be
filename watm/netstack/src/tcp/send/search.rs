//! The search for a wider path after segments became shorter: now and then one is sent in the next
//! width, with new bytes (RFC 4821, RFC 8899).

use core::time::Duration;

use watm_core::Instant;

use super::Transmitter;
use super::outstanding::{Fate, Transmission};
use super::width::Width;
use crate::tcp::congestion::Phase;
use crate::tcp::sequence::{Block, Sequence};

/// The time after which a narrow path is tried again, because it may have changed
/// (PMTU_RAISE_TIMER of RFC 8899 section 5.1.1, RFC 8201 section 4).
const AGAIN: Duration = Duration::from_secs(600);
/// The probes without an answer after which a path counts as narrow, and the time between them
/// (MAX_PROBES and PROBE_TIMER of RFC 8899 section 5.1).
const PROBES: u8 = 3;
const BETWEEN: Duration = Duration::from_secs(15);

/// The search of a flow whose segments are shorter than the path to its peer allows.
#[derive(Debug, Default)]
pub(super) struct Search {
    state: State,
    /// The number of lost probes.
    lost: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// A probe leaves when no recovery is in progress, and enough bytes are queued.
    #[default]
    Due,
    /// The range of the probe in flight.
    Sent(Block),
    WaitsUntil(Instant),
}

impl Search {
    /// The search for a path that is wider than this.
    pub(super) fn beyond(width: Width) -> Option<Box<Search>> {
        (width != Width::Full).then(Box::default)
    }

    /// Records a router's report at this time. The next probe waits for [`AGAIN`].
    pub(super) fn report_narrow(&mut self, at: Instant) {
        self.state = State::WaitsUntil(at + AGAIN);
    }

    fn probe(&self) -> Option<Block> {
        match self.state {
            State::Sent(range) => Some(range),
            _ => None,
        }
    }
}

impl Transmitter {
    /// The payload bytes of a probe, if it is due.
    pub(super) fn due_width_probe(&self) -> Option<usize> {
        let search = self.search.as_ref()?;
        let len = self.path.segment_of(self.path.width().wider());
        let may = self.phase == Phase::Open && len > self.segment();
        (may && search.state == State::Due).then_some(len)
    }

    /// Begins the probe that is due, if enough bytes are queued and the peer has room. Returns its
    /// payload bytes.
    pub(super) fn begin_width_probe(&mut self, now: Instant) -> Option<usize> {
        let search = self.search.as_mut()?;
        if matches!(search.state, State::WaitsUntil(at) if at <= now) {
            search.state = State::Due;
        }
        let len = self.due_width_probe()?;
        let queued = self.next.until(self.queued_end);
        let usable = self.next.until(self.window.end);
        if queued.min(usable) < len {
            return None;
        }
        self.search.as_mut()?.state = State::Sent((self.next, self.next.plus(len)));
        Some(len)
    }

    /// Widens segments if the probe was acknowledged.
    pub(super) fn end_width_probe(&mut self) {
        let probe = self.search.as_ref().and_then(|search| search.probe());
        if probe.is_some_and(|(_, end)| !end.is_after(self.una)) {
            self.set_width(self.path.width().wider());
        }
    }

    /// The first number of the probe in flight.
    pub(super) fn width_probe(&self) -> Option<Sequence> {
        Some(self.search.as_ref()?.probe()?.0)
    }

    /// Marks the probe as lost if it is the first that is outstanding. The window does not react
    /// (RFC 4821 section 7.6.2). Returns true if it is lost.
    pub(super) fn lose_width_probe(&mut self) -> bool {
        let probe = self.width_probe();
        let is_probe =
            |sent: &&Transmission| sent.fate == Fate::InFlight && Some(sent.start) == probe;
        let Some(first) = self.outstanding.first().filter(is_probe) else {
            return false;
        };
        let len = first.len();
        self.urgent = true;
        self.outstanding.lose_first(len).is_some()
    }

    /// Learns from a router that the probe does not pass. Returns true if it is lost.
    pub(super) fn refuse_width_probe(&mut self, mtu: usize) -> bool {
        let width = self.path.width().wider();
        let Some(search) = &mut self.search else {
            return false;
        };
        let Some((start, _)) = search.probe().filter(|_| mtu < self.path.mtu_of(width)) else {
            return false;
        };
        // A report is certain: the retransmission counts as the last lost probe.
        search.lost = PROBES - 1;
        self.urgent = true;
        self.forget_doubts();
        self.outstanding.lose(|sent| sent.start == start);
        true
    }

    /// Records a retransmission that begins at `start`. If it repeats the probe, the probe is lost:
    /// a later acknowledgement would not tell which transmission arrived.
    pub(super) fn note_probe_repeated(&mut self, start: Sequence, now: Instant) {
        let Some(search) = &mut self.search else {
            return;
        };
        if search.probe().is_none_or(|(first, _)| first != start) {
            return;
        }
        search.lost += 1;
        let wait = if search.lost < PROBES { BETWEEN } else { AGAIN };
        search.lost %= PROBES;
        search.state = State::WaitsUntil(now + wait);
        // The window must not react to what a tail loss probe repaired.
        self.forget_tail_probe();
    }
}
