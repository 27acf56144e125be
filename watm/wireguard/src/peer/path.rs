//! Estimates of the round trip and the loss on the path to a peer.

use std::time::Duration;

use watm_core::Instant;

use crate::counters::{Counter, Counters};

/// The measurements of the path.
///
/// A round trip is the time from a handshake message from here to the peer's immediate answer: from
/// an initiation to its response, if the initiation was sent once (after a repetition, the answer
/// is ambiguous: Karn and Partridge, 1987), and from a response to the first packet of the new
/// session. Loss is the missing part of the peer's packets in a session, which are numbered.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// The session of the last packet, by its local index, and the one before.
    session: Option<u32>,
    older: Option<u32>,
    /// The number after the highest that has arrived in it.
    next: u64,
    begun: Call,
    round_trip: Option<Duration>,
    /// The shortest round trip so far.
    least: Option<Duration>,
    lately: Window,
}

/// Initiations since the last response.
#[derive(Debug, Default)]
enum Call {
    #[default]
    None,
    Once(Instant),
    Repeated,
}

impl Path {
    /// Record an initiation sent.
    pub(super) fn called(&mut self, now: Instant) {
        self.begun = match self.begun {
            Call::None => Call::Once(now),
            Call::Once(_) | Call::Repeated => Call::Repeated,
        };
    }

    /// Record its response.
    pub(super) fn answered(&mut self, now: Instant, counters: &mut Counters) {
        if let Call::Once(begun) = std::mem::take(&mut self.begun) {
            self.measured(now - begun, counters);
        }
    }

    /// Record an authentic packet: `datagram`, in the session with this index. `offered` is the
    /// time of the response that offered the session, if the peer had not used the session yet.
    pub(super) fn packet(
        &mut self,
        index: u32,
        datagram: &[u8],
        offered: Option<Instant>,
        now: Instant,
        counters: &mut Counters,
    ) {
        let Some(number) = datagram.get(8..16) else {
            return;
        };
        let number = u64::from_le_bytes(number.try_into().expect("eight"));
        if let Some(offered) = offered
            && number == 0
        {
            self.measured(now - offered, counters);
        }
        if self.session != Some(index) {
            if self.older == Some(index) {
                return;
            }
            self.older = self.session.replace(index);
            self.next = 0;
        }
        let expected = match number.checked_sub(self.next) {
            Some(skipped) => skipped.saturating_add(1),
            None => 0,
        };
        self.next = self.next.saturating_add(expected);
        counters.count(Counter::PathReceived);
        counters.add(Counter::PathExpected, expected);
        self.lately.add(now, expected);
    }

    /// Forget the measurements: the peer has another address, and thus another path.
    pub(super) fn moved(&mut self) {
        self.begun = Call::None;
        self.round_trip = None;
        self.least = None;
        self.lately = Window::default();
    }

    /// A mean of round trips, with the most weight on the last one.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The shortest round trip so far, which flows through the peer need at least.
    pub(super) fn least_round_trip(&self) -> Option<Duration> {
        self.least
    }

    /// The recent loss of packets from the peer, in thousandths. `None` if there were too few.
    pub(super) fn loss_permille(&self, now: Instant) -> Option<u16> {
        self.lately.loss_permille(now)
    }

    fn measured(&mut self, time: Duration, counters: &mut Counters) {
        counters.count(Counter::RoundTrips);
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counters.add(Counter::RoundTripMicroseconds, microseconds);
        self.least = Some(self.least.map_or(time, |least| least.min(time)));
        // A handshake happens every two minutes: with less weight, the mean would be out of date.
        self.round_trip = Some(match self.round_trip {
            Some(before) => before / 2 + time / 2,
            None => time,
        });
    }
}

/// Packets received and expected in the last minute.
#[derive(Debug, Default)]
struct Window([Slot; SLOTS]);

/// The slots of the window, ten seconds each.
const SLOTS: usize = 6;
const SLOT: Duration = Duration::from_secs(10);

/// The least number of packets for an estimate: with fewer, a single packet matters too much.
const ENOUGH: u64 = 20;

#[derive(Debug, Default)]
struct Slot {
    /// The number of the period since the clock's zero.
    period: u64,
    expected: u64,
    received: u64,
}

impl Window {
    /// Count one received packet, and the packets expected by its number since the last one.
    fn add(&mut self, now: Instant, expected: u64) {
        let period = period(now);
        let slot = &mut self.0[(period % SLOTS as u64) as usize];
        if slot.period != period {
            *slot = Slot {
                period,
                ..Slot::default()
            };
        }
        slot.expected = slot.expected.saturating_add(expected);
        slot.received += 1;
    }

    fn loss_permille(&self, now: Instant) -> Option<u16> {
        let recent = |slot: &&Slot| period(now).saturating_sub(slot.period) < SLOTS as u64;
        let (mut expected, mut received) = (0_u64, 0_u64);
        for slot in self.0.iter().filter(recent) {
            expected = expected.saturating_add(slot.expected);
            received = received.saturating_add(slot.received);
        }
        if expected < ENOUGH {
            return None;
        }
        // Late packets may belong to the time before.
        let missing = expected.saturating_sub(received);
        let permille = u128::from(missing) * 1000 / u128::from(expected);
        Some(u16::try_from(permille).expect("a part of a thousand"))
    }
}

fn period(now: Instant) -> u64 {
    now.0 / u64::try_from(SLOT.as_nanos()).expect("ten seconds")
}
