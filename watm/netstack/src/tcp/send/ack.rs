//! The processing of acknowledgements (RFC 9293 section 3.10.7.4, RFC 5681, RFC 6675).

use core::time::Duration;

use watm_core::Instant;

use super::outstanding::{Fate, Transmission};
use super::rack::Rack;
use super::{PeerWindow, Transmitter};
use crate::tcp::buffer::Pool;
use crate::tcp::clocks;
use crate::tcp::congestion::{Ack, Delivery, Phase, Rate};
use crate::tcp::sequence::{Block, Sequence};

/// The content of an acknowledgement, which lies between SND.UNA - MAX.SND.WND and SND.NXT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement<'a> {
    pub to: Sequence,
    /// The number of the segment that carries it.
    pub sequence: Sequence,
    /// The window in bytes.
    pub window: usize,
    /// True if the segment carries nothing else.
    pub is_bare: bool,
    /// The ranges that the peer has received beyond a gap, or twice.
    pub blocks: &'a [Block],
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
    /// True if it echoes congestion.
    pub congested: bool,
}

/// The deliveries of one acknowledgement.
struct Progress {
    now: Instant,
    /// The least round trip ever, before which an answer comes too soon.
    shortest: Duration,
    /// The furthest arrival before, and the size of segments.
    before: (Option<Sequence>, usize),
    /// The echoed timestamp, and the offset of the clock, if the acknowledgement advances. Others
    /// echo an older segment than the one that they report (RFC 7323 section 4.3).
    echo: Option<(u32, u32)>,
    /// True for what was reported beyond a gap.
    beyond: bool,
    delivery: Delivery,
    /// The transmission time of the newest segment that was sent only once.
    newest: Option<Instant>,
    /// The last transmission time of the newest segment that was sent more than once.
    repeated: Option<Instant>,
    /// The bytes marked as lost that have arrived by their first transmission.
    not_lost: usize,
    /// The same, for those not retransmitted since.
    unrepeated: usize,
}

impl Transmitter {
    /// Processes an acknowledgement.
    pub(crate) fn acknowledge(&mut self, ack: &Acknowledgement<'_>, pool: &mut Pool, now: Instant) {
        if self.una.is_after(ack.to) {
            return;
        }
        let opens = self.update_window(ack);
        let acknowledged = self.una.until(ack.to);
        self.count_duplicate(ack, acknowledged, opens);
        let progress = self.deliver(ack, now);
        if acknowledged > 0 {
            self.advance(ack.to, pool, now);
        }
        self.expect_duplicates(progress.not_lost);
        let duplicate = self.find_duplicate(ack);
        self.undo_by(&progress, acknowledged > 0);
        self.end_recovery(now);
        let repeats = acknowledged == 0 && progress.delivery.bytes() == 0;
        self.end_tail_probe(duplicate, repeats && ack.is_bare, now);
        let trip = progress.trip();
        if let Some(trip) = trip {
            self.trips.measure(trip, now);
        } else if let Some(sent) = progress.repeated {
            self.trips.measure_repetition(now - sent);
        }
        self.detect_losses(acknowledged > 0, now);
        self.end_width_probe();
        let delivered = progress.delivery.bytes();
        let rate = self.rate.sample(progress.delivery, self.trips.least());
        if delivered > 0 {
            let echoed_anew = ack.congested && self.reductions.echoed(self.una);
            if ack.congested && !echoed_anew {
                self.congestion.on_repeated_echo();
            }
            let report = Ack {
                now,
                delivered,
                acknowledged,
                in_flight: self.in_flight(),
                total_delivered: self.rate.delivered(),
                round_trip: trip,
                smoothed: self.trips.smoothed(),
                least: self.trips.least(),
                rate,
                phase: self.phase,
                window_limited: self.usage.full,
                most_in_flight: self.usage.flight,
                congestion_echoed: echoed_anew,
            };
            self.congestion.on_ack(&report);
        }
        self.note_usage();
    }

    /// Takes the window (RFC 9293 section 3.10.7.4). Returns true if it is another one.
    fn update_window(&mut self, ack: &Acknowledgement<'_>) -> bool {
        let old = &self.window;
        let newer = ack.sequence.is_after(old.by_sequence)
            || ack.sequence == old.by_sequence && !old.by_acknowledged.is_after(ack.to);
        if !newer {
            return false;
        }
        let before = self.window;
        self.window = PeerWindow {
            end: ack.to.plus(ack.window),
            size: ack.window,
            by_sequence: ack.sequence,
            by_acknowledged: ack.to,
            largest: before.largest.max(ack.window),
        };
        let was_closed = !before.end.is_after(self.una);
        if was_closed && self.window.end.is_after(self.una) {
            self.open();
        }
        before.size != ack.window
    }

    /// Records that a segment with this number repeats the window and the acknowledgement before.
    pub(crate) fn repeats_window(&mut self, sequence: Sequence, acknowledged: Sequence) {
        if self.window.by_acknowledged == acknowledged {
            self.window.by_sequence = self.window.by_sequence.later(sequence);
        }
    }

    /// Handles the opening of a closed window: a probe is repeated as what it is, a segment.
    fn open(&mut self) {
        self.trips.window_opened();
        if !self.outstanding.is_empty() {
            self.outstanding.lose_all(false);
            self.forget_doubts();
            self.urgent = true;
        }
    }

    /// Counts a duplicate of a peer that is not selective (RFC 5681 section 2).
    fn count_duplicate(&mut self, ack: &Acknowledgement<'_>, acknowledged: usize, other: bool) {
        if acknowledged > 0 {
            self.duplicates = match self.phase {
                // A partial acknowledgement covers what the duplicates stood for.
                Phase::Recovery => {
                    let covered = acknowledged / self.segment();
                    self.duplicates.saturating_sub(covered)
                }
                _ => 0,
            };
        } else if !self.selective && ack.is_bare && !other && !self.outstanding.is_empty() {
            // Duplicates at the end of a recovery answer needless retransmissions (RFC 6582
            // section 3.2 step 2).
            let needless = self.phase == Phase::Open && self.una == self.recover;
            self.duplicates += usize::from(!needless);
        }
    }

    /// Records all that the acknowledgement delivers.
    fn deliver(&mut self, ack: &Acknowledgement<'_>, now: Instant) -> Progress {
        let segment = self.segment();
        let mut progress = Progress {
            now,
            // Without SACK, a wrong undo would hide what else was lost.
            shortest: match self.selective {
                true => self.trips.shortest(),
                false => Duration::ZERO,
            },
            before: (self.rack.furthest(), segment),
            echo: ack
                .echo
                .zip(self.clock)
                .filter(|_| ack.to.is_after(self.una)),
            beyond: false,
            delivery: Delivery::default(),
            newest: None,
            repeated: None,
            not_lost: 0,
            unrepeated: 0,
        };
        let (una, next) = (self.una.later(ack.to), self.next);
        let probe = self.width_probe();
        let Transmitter {
            outstanding,
            rate,
            rack,
            ..
        } = self;
        outstanding.acknowledge(ack.to, |sent| progress.deliver(sent, rate, rack));
        if progress.repeated.is_some() {
            // The rest waited for the repetition (RFC 6298 section 3).
            progress.newest = None;
        }
        progress.beyond = true;
        if self.selective {
            for &(start, end) in ack.blocks {
                if end.is_after(start) && start.is_after(una) && !end.is_after(next) {
                    outstanding.receive((start, end), segment, probe, |sent| {
                        progress.deliver(sent, rate, rack);
                    });
                }
            }
        }
        progress
    }

    /// Moves SND.UNA forward.
    fn advance(&mut self, to: Sequence, pool: &mut Pool, now: Instant) {
        self.una = to;
        self.unaccepted_ack = None;
        self.reductions.acknowledged(to);
        self.forget_passed();
        self.trips.answered();
        self.waiting_since = now;
        let data = to.earlier(self.queued_end);
        self.queue.skip(self.base.until(data), pool);
        self.base = self.base.later(data);
        if self.base == self.queued_end {
            self.queue.clear(pool);
        }
    }

    /// Returns true if the first block tells of a duplicate: it precedes the acknowledged number,
    /// or lies in the second block (RFC 2883 section 4).
    fn find_duplicate(&mut self, ack: &Acknowledgement<'_>) -> bool {
        let Some(&(start, end)) = ack.blocks.first().filter(|_| self.selective) else {
            return false;
        };
        let within = |&(first, last): &Block| !first.is_after(start) && !end.is_after(last);
        let is_duplicate = !end.is_after(ack.to) || ack.blocks.get(1).is_some_and(within);
        if is_duplicate && end.is_after(start) {
            self.note_duplicate((start, end));
        }
        is_duplicate
    }

    /// Undoes what the progress shows to be wrong.
    fn undo_by(&mut self, progress: &Progress, advances: bool) {
        let unrepeated = progress.unrepeated;
        let by_first = progress.not_lost > 0
            || match self.selective {
                true => unrepeated > 0,
                false => {
                    let timeout = self.spurious.as_mut();
                    timeout.is_some_and(|timeout| timeout.answered(advances, unrepeated))
                }
            };
        let not_lost = progress.not_lost + unrepeated;
        if self.spurious.is_some() && by_first {
            self.rate.not_lost(not_lost);
            self.undo_timeout();
        } else if not_lost > 0 {
            self.not_lost(not_lost);
        }
    }
}

impl Progress {
    /// Records a piece that the peer has now.
    fn deliver(&mut self, sent: &Transmission, rate: &mut Rate, rack: &mut Rack) {
        let stamped = (&sent.stamp, sent.sent);
        rate.deliver(&mut self.delivery, sent.len(), stamped, self.now);
        let original = !sent.again || self.precedes(sent);
        if sent.fate == Fate::Lost {
            self.unrepeated += sent.len();
        } else if sent.again && original {
            self.not_lost += sent.len();
        }
        match sent.again {
            true => self.repeated = self.repeated.max(Some(sent.sent)),
            false => self.newest = self.newest.max(Some(sent.sent)),
        }
        rack.arrived(sent, original, self.before, self.now);
    }

    /// Returns true if the arrival is that of an earlier transmission: it comes too soon, or echoes
    /// a timestamp from before the last one (RFC 3522).
    fn precedes(&self, sent: &Transmission) -> bool {
        let soon = self.now < sent.sent + self.shortest / 4 * 3;
        let echo = self.echo.filter(|_| !self.beyond);
        soon || echo.is_some_and(|(echo, offset)| {
            clocks::precedes(echo, clocks::reading(offset, sent.sent))
        })
    }

    /// The measured round trip: that of a segment sent only once (Karn's algorithm), or else that
    /// of the echoed timestamp.
    fn trip(&self) -> Option<Duration> {
        if let Some(sent) = self.newest {
            return Some(self.now - sent);
        }
        let (echo, offset) = self.echo.filter(|_| self.delivery.bytes() > 0)?;
        let age = clocks::reading(offset, self.now).wrapping_sub(echo);
        // An echo of something else would be far off. One of the same tick is not older than a
        // tick.
        (age < 60_000).then(|| Duration::from_millis(age.max(1).into()))
    }
}
