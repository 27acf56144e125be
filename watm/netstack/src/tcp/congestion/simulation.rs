//! A bottleneck in virtual time, shared by model senders that a congestion control drives, for
//! `tests`. A sender always has data, a receiver acknowledges each segment, and nothing is
//! reordered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use watm_core::Instant;

use super::*;

/// The bytes of a segment.
pub(super) const SEGMENT: usize = 1400;
/// The number of later deliveries that show a loss (RFC 5681 section 3.2).
const DUPLICATES: u64 = 3;
/// The time without an acknowledgement after which everything in flight is lost.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The length of a spell in which acknowledgements are late by the same time.
const SPELL: Duration = Duration::from_millis(40);

/// A bottleneck: a queue before a link, which loses segments at random.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// The bits per second.
    pub rate: u64,
    /// The round trip without a queue.
    pub round_trip: Duration,
    /// The bytes that wait at most, relative to those that fill the path, in percent.
    pub queue: u64,
    /// The segments lost of 10,000.
    pub loss: u64,
    /// The most by which acknowledgements are late, because the ends are busy. All of a spell are
    /// late by the same time.
    pub late: Duration,
}

/// The work of one sender in the measured time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// The bits per second that were delivered.
    pub rate: u64,
    /// The segments lost of 10,000 that were sent.
    pub loss: u64,
}

/// The bottleneck at work.
pub(super) struct Simulation {
    path: Path,
    now: Instant,
    /// The time when the link has sent all of its queue.
    idle_at: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    count: u64,
    senders: Vec<Sender>,
    random: u64,
    /// The lateness of acknowledgements in this spell, the end of the spell, and the arrival of the
    /// last acknowledgement.
    late: Duration,
    late_until: Instant,
    last: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A sender may send, because its pacing allows it.
    Send(usize),
    /// The acknowledgement of a transmission arrives.
    Acknowledge(usize, u64),
    /// A sender looks for a timeout.
    Check(usize),
}

struct Sender {
    control: Box<dyn Congestion>,
    rate: Rate,
    /// Transmissions in flight, by number.
    flight: BTreeMap<u64, Transmission>,
    sent: u64,
    newest_delivered: u64,
    in_flight: usize,
    /// Segments to send again, the next one, the first that is not acknowledged, and those that are
    /// acknowledged beyond it.
    lost: VecDeque<u64>,
    next: u64,
    first: u64,
    sacked: BTreeSet<u64>,
    /// The segment whose acknowledgement ends the recovery in progress.
    recovers: Option<u64>,
    times_out: u32,
    send_at: Instant,
    wakes_at: Option<Instant>,
    acknowledged_at: Instant,
    limited_at: Option<Instant>,
    least: Option<Duration>,
    smoothed: Duration,
    most_in_flight: usize,
    started: bool,
    /// The counts at the begin of the measured time: delivered and lost bytes.
    begin: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    segment: u64,
    stamp: Stamp,
    at: Instant,
}

impl Path {
    fn bytes_per_second(&self) -> u64 {
        self.rate / 8
    }

    /// The bytes that fill the path.
    pub(super) fn product(&self) -> u64 {
        self.bytes_per_second() * self.round_trip.as_micros() as u64 / 1_000_000
    }
}

impl Simulation {
    pub(super) fn new(path: Path, seed: u64) -> Self {
        Simulation {
            path,
            now: Instant::default(),
            idle_at: Instant::default(),
            events: BinaryHeap::new(),
            count: 0,
            senders: Vec::new(),
            random: seed,
            late: Duration::ZERO,
            late_until: Instant::default(),
            last: Instant::default(),
        }
    }

    /// Adds a sender that begins `after` the start.
    pub(super) fn add(&mut self, algorithm: Algorithm, after: Duration) {
        let index = self.senders.len();
        let start = Start {
            now: Instant::default() + after,
            segment: SEGMENT,
            round_trip: Some(self.path.round_trip),
            lost_handshake: false,
            selective: true,
            seed: self.random ^ index as u64,
        };
        self.senders.push(Sender::new(algorithm.start(&start)));
        self.schedule(Instant::default() + after, Event::Send(index));
        self.schedule(Instant::default() + after, Event::Check(index));
    }

    /// Changes the path.
    pub(super) fn set_path(&mut self, path: Path) {
        self.path = path;
    }

    /// The state of a sender's congestion control, as text.
    pub(super) fn state(&self, index: usize) -> String {
        format!("{:?}", self.senders[index].control)
    }

    /// Runs for some time, and returns the work of each sender in it.
    pub(super) fn run(&mut self, time: Duration) -> Vec<Work> {
        for sender in &mut self.senders {
            sender.begin = (sender.rate.delivered(), sender.rate.lost());
        }
        let end = self.now + time;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                self.schedule(at, event);
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.now = end;
        self.senders
            .iter()
            .map(|sender| sender.work(time))
            .collect()
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send(index) => {
                self.senders[index].wakes_at = None;
                self.send(index);
            }
            Event::Acknowledge(index, number) => {
                let now = self.now;
                self.senders[index].acknowledge(number, now);
                self.send(index);
            }
            Event::Check(index) => {
                let now = self.now;
                self.senders[index].check_timeout(now);
                self.schedule(now + TIMEOUT / 5, Event::Check(index));
                self.send(index);
            }
        }
    }

    /// Sends what pacing and window allow.
    fn send(&mut self, index: usize) {
        let now = self.now;
        let allowed = self.senders[index].allowed(now);
        for _ in 0..allowed {
            let number = self.senders[index].transmit(now);
            if let Some(at) = self.carry() {
                self.schedule(at, Event::Acknowledge(index, number));
            }
        }
        let sender = &mut self.senders[index];
        if let Some(at) = sender.wake(now) {
            self.schedule(at, Event::Send(index));
        }
    }

    /// Carries a segment across the bottleneck. Returns the time of its acknowledgement, unless it
    /// is lost.
    fn carry(&mut self) -> Option<Instant> {
        let rate = self.path.bytes_per_second();
        let waits = (self.idle_at - self.now).as_nanos() as u64;
        let queued = (waits as u128 * rate as u128 / 1_000_000_000) as u64;
        let most = self.path.product() * self.path.queue / 100;
        if self.random() % 10_000 < self.path.loss || queued + SEGMENT as u64 > most {
            return None;
        }
        let takes = Duration::from_nanos(SEGMENT as u64 * 1_000_000_000 / rate);
        self.idle_at = self.idle_at.max(self.now) + takes;
        let arrives = self.idle_at + self.path.round_trip + self.lateness();
        self.last = self.last.max(arrives);
        Some(self.last)
    }

    /// The time by which acknowledgements are late now.
    fn lateness(&mut self) -> Duration {
        if self.now >= self.late_until {
            self.late = self.path.late * (self.random() % 100) as u32 / 100;
            self.late_until = self.now + SPELL;
        }
        self.late
    }

    fn random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }
}

impl Sender {
    fn new(control: Box<dyn Congestion>) -> Self {
        Sender {
            control,
            rate: Rate::default(),
            flight: BTreeMap::new(),
            sent: 0,
            newest_delivered: 0,
            in_flight: 0,
            lost: VecDeque::new(),
            next: 0,
            first: 0,
            sacked: BTreeSet::new(),
            recovers: None,
            times_out: 0,
            send_at: Instant::default(),
            wakes_at: None,
            acknowledged_at: Instant::default(),
            limited_at: None,
            least: None,
            smoothed: Duration::ZERO,
            most_in_flight: 0,
            started: false,
            begin: (0, 0),
        }
    }

    fn work(&self, time: Duration) -> Work {
        let delivered = self.rate.delivered() - self.begin.0;
        let lost = self.rate.lost() - self.begin.1;
        Work {
            rate: (delivered as u128 * 8_000_000_000 / time.as_nanos()) as u64,
            loss: lost * 10_000 / (delivered + lost).max(1),
        }
    }

    /// The number of segments that may leave now.
    fn allowed(&mut self, now: Instant) -> usize {
        let room = self.control.window().saturating_sub(self.in_flight) / SEGMENT;
        match self.control.pacing_rate() {
            Some(_) if now < self.send_at => 0,
            Some(_) => room.min((self.control.send_quantum() / SEGMENT).max(1)),
            None => room,
        }
    }

    /// The time of the next transmission, if pacing delays it and nothing waits for it yet.
    fn wake(&mut self, now: Instant) -> Option<Instant> {
        let full = self.in_flight + SEGMENT > self.control.window();
        if full || self.wakes_at.is_some() || self.send_at <= now {
            return None;
        }
        self.wakes_at = Some(self.send_at);
        self.wakes_at
    }

    fn transmit(&mut self, now: Instant) -> u64 {
        let again = self.lost.pop_front();
        let segment = again.unwrap_or(self.next);
        self.next += u64::from(again.is_none());
        if !std::mem::replace(&mut self.started, true) {
            self.acknowledged_at = now;
        }
        let before = self.in_flight;
        self.in_flight += SEGMENT;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        if self.in_flight + SEGMENT > self.control.window() {
            self.limited_at = Some(now);
        }
        let stamp = self.rate.stamp(before, self.in_flight, now);
        self.sent += 1;
        let transmission = Transmission {
            segment,
            stamp,
            at: now,
        };
        self.flight.insert(self.sent, transmission);
        self.control.on_send(&Sent {
            now,
            in_flight: self.in_flight,
        });
        if let Some(rate) = self.control.pacing_rate() {
            let takes = SEGMENT as u64 * 1_000_000_000 / rate.max(1);
            self.send_at = self.send_at.max(now) + Duration::from_nanos(takes);
        }
        self.sent
    }

    fn acknowledge(&mut self, number: u64, now: Instant) {
        let Some(transmission) = self.flight.remove(&number) else {
            return;
        };
        self.acknowledged_at = now;
        self.times_out = 0;
        self.in_flight -= SEGMENT;
        self.newest_delivered = self.newest_delivered.max(number);
        let mut delivery = Delivery::default();
        let stamp = (&transmission.stamp, transmission.at);
        self.rate.deliver(&mut delivery, SEGMENT, stamp, now);
        let trip = now - transmission.at;
        self.measure(trip);
        let acknowledged = self.advance(transmission.segment);
        self.lose(now);
        self.end_recovery(now);
        let least = self.least.unwrap_or(trip);
        let rate = self.rate.sample(delivery, least);
        let limited = |at: Instant| now - at <= self.smoothed;
        self.control.on_ack(&Ack {
            now,
            delivered: SEGMENT,
            acknowledged,
            in_flight: self.in_flight,
            total_delivered: self.rate.delivered(),
            round_trip: Some(trip),
            smoothed: self.smoothed,
            least,
            rate,
            phase: self.phase(),
            window_limited: self.limited_at.is_some_and(limited),
            most_in_flight: self.most_in_flight,
            congestion_echoed: false,
        });
    }

    fn phase(&self) -> Phase {
        match (self.recovers, self.times_out) {
            (None, _) => Phase::Open,
            (Some(_), 0) => Phase::Recovery,
            (Some(_), _) => Phase::Timeout,
        }
    }

    fn measure(&mut self, trip: Duration) {
        self.least = Some(self.least.map_or(trip, |least| least.min(trip)));
        self.smoothed = match self.smoothed.is_zero() {
            true => trip,
            false => (self.smoothed * 7 + trip) / 8,
        };
    }

    /// Records that a segment arrived. Returns the bytes by which the acknowledgement number
    /// advances.
    fn advance(&mut self, segment: u64) -> usize {
        let before = self.first;
        if segment >= self.first {
            self.sacked.insert(segment);
        }
        while self.sacked.remove(&self.first) {
            self.first += 1;
        }
        (self.first - before) as usize * SEGMENT
    }

    /// Finds the transmissions that are lost. Returns their bytes.
    fn lose(&mut self, now: Instant) -> usize {
        let mut bytes = 0;
        while let Some((&number, &transmission)) = self.flight.first_key_value() {
            if number + DUPLICATES > self.newest_delivered {
                break;
            }
            self.flight.remove(&number);
            bytes += SEGMENT;
            self.lose_one(&transmission, now);
        }
        if bytes > 0 && self.recovers.is_none() {
            self.recovers = Some(self.next);
            self.control.on_recovery(&Recovery {
                total_delivered: self.rate.delivered(),
            });
        }
        bytes
    }

    fn lose_one(&mut self, transmission: &Transmission, now: Instant) {
        self.in_flight -= SEGMENT;
        self.rate.lose(SEGMENT);
        self.lost.push_back(transmission.segment);
        let stamp = &transmission.stamp;
        self.control.on_loss(&Loss {
            now,
            bytes: SEGMENT,
            sent_in_flight: stamp.in_flight as usize,
            lost_since_sent: self.rate.lost() - stamp.lost,
            total_delivered: self.rate.delivered(),
            app_limited: stamp.app_limited,
            window_limited: self.limited_at.is_some_and(|at| now - at <= self.smoothed),
        });
    }

    fn end_recovery(&mut self, now: Instant) {
        if self.recovers.is_some_and(|end| self.first >= end) {
            self.recovers = None;
            self.control.on_recovery_end(now);
        }
    }

    fn check_timeout(&mut self, now: Instant) {
        if self.flight.is_empty() || now - self.acknowledged_at < TIMEOUT {
            return;
        }
        self.acknowledged_at = now;
        self.times_out += 1;
        self.recovers = Some(self.next);
        let in_flight = std::mem::take(&mut self.in_flight);
        self.rate.lose(in_flight);
        let flight = std::mem::take(&mut self.flight);
        self.lost.extend(flight.values().map(|one| one.segment));
        self.control.on_timeout(&Timeout {
            now,
            in_flight,
            in_a_row: self.times_out,
            total_delivered: self.rate.delivered(),
            app_limited: false,
            window_limited: true,
        });
    }
}
