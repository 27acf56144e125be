//! Paths whose delay changes, and the writes of a sender over them. The tests in `rough_paths.rs`
//! use them, and the example `rough_path`, which puts the kernel's TCP on the same paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::random::Random;

/// The bytes of a full segment.
pub const SEGMENT: usize = 1380;
/// The bytes of the headers of a packet.
const HEADERS: usize = 40;
/// The segments with which an ideal sender begins (RFC 6928).
const INITIAL: usize = 10;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The time that a packet takes in one direction.
#[derive(Debug, Clone)]
pub enum Delay {
    Steady(Duration),
    /// Changes once, at a time after the connection began.
    Step {
        before: Duration,
        after: Duration,
        at: Duration,
    },
    /// Changes with each packet.
    Alternating(Duration, Duration),
    /// Uniformly distributed between the two.
    Jitter(Duration, Duration),
    /// Pauses repeatedly; packets sent during a pause arrive at its end.
    Stalls {
        delay: Duration,
        every: Duration,
        length: Duration,
    },
}

/// The narrowest link of a path.
#[derive(Debug, Clone, Copy)]
pub struct Bottleneck {
    pub bytes_per_second: f64,
    /// The longest time that a packet waits before it; others are lost.
    pub queue: Duration,
}

/// The packets that a path loses.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    None,
    /// Each of a thousand packets for itself.
    Random(usize),
    /// Good and bad times of exponentially distributed lengths (Gilbert and Elliott), with the losses
    /// in a thousand during the bad ones.
    Bursts {
        good: Duration,
        bad: Duration,
        lost: usize,
    },
}

/// The treatment of the packets of one direction.
#[derive(Debug, Clone)]
pub struct Path {
    pub delay: Delay,
    pub bottleneck: Option<Bottleneck>,
    /// The packets in a thousand that arrive later by up to `late`, after those that follow. All
    /// others keep their order.
    pub reordered: usize,
    pub late: Duration,
    /// The packets in a thousand that arrive twice.
    pub duplicated: usize,
    pub loss: Loss,
    /// The packets in a thousand that arrive damaged.
    pub damaged: usize,
    /// The longest packets from these times on, in bytes; others are lost silently.
    pub longest: Vec<(Duration, usize)>,
}

impl Path {
    pub fn new(delay: Delay) -> Path {
        Path {
            delay,
            bottleneck: None,
            reordered: 0,
            late: Duration::ZERO,
            duplicated: 0,
            loss: Loss::None,
            damaged: 0,
            longest: Vec::new(),
        }
    }

    /// The longest packet at this time.
    pub fn longest_at(&self, now: Duration) -> usize {
        let past = self.longest.iter().rev().find(|(at, _)| *at <= now);
        past.map_or(usize::MAX, |(_, longest)| *longest)
    }
}

/// One direction of a path.
pub struct Way {
    pub path: Path,
    random: Random,
    sent: u64,
    /// True in a bad time of [`Loss::Bursts`], and the time when that changes.
    bad: bool,
    changes: Duration,
    last: Duration,
    /// The time when the bottleneck becomes idle.
    free: Duration,
}

impl Way {
    pub fn new(path: Path, seed: u64) -> Way {
        Way {
            path,
            random: Random(seed),
            sent: 0,
            bad: true,
            changes: Duration::ZERO,
            last: Duration::ZERO,
            free: Duration::ZERO,
        }
    }

    /// The arrival times of a packet of this many bytes that is sent at `now`: two if it is
    /// duplicated, none if it is lost. Times count from the beginning of the connection.
    pub fn arrivals(&mut self, now: Duration, bytes: usize) -> Vec<Duration> {
        if self.loses(now) || bytes > self.path.longest_at(now) {
            return Vec::new();
        }
        let queue = self.path.bottleneck.map(|bottleneck| bottleneck.queue);
        if queue.is_some_and(|queue| self.free > now + queue) {
            return Vec::new();
        }
        let mut arrivals = vec![self.certain_arrival(now, bytes)];
        if self.random.below(1000) < self.path.duplicated {
            arrivals.push(self.arrival(now));
        }
        arrivals
    }

    /// The packets that arrive, with their times, some of them damaged.
    pub fn carry(&mut self, now: Duration, packet: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        let arrivals = self.arrivals(now, packet.len());
        let packets = arrivals
            .into_iter()
            .map(|at| (at, self.maybe_damage(packet)));
        packets.collect()
    }

    /// A copy of a packet, perhaps with one bit changed, which every checksum reveals, or cut off.
    fn maybe_damage(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut copy = packet.to_vec();
        if self.path.damaged == 0 || self.random.below(1000) >= self.path.damaged {
            return copy;
        }
        let at = self.random.below(copy.len());
        match self.random.below(8) {
            0 => copy.truncate(at),
            _ => copy[at] ^= 1 << self.random.below(8),
        }
        copy
    }

    fn loses(&mut self, now: Duration) -> bool {
        match self.path.loss {
            Loss::None => false,
            Loss::Random(lost) => self.random.below(1000) < lost,
            Loss::Bursts { good, bad, lost } => {
                while self.changes <= now {
                    self.bad = !self.bad;
                    let mean = if self.bad { bad } else { good };
                    let lasts = self.exponential(mean);
                    self.changes += lasts;
                }
                self.bad && self.random.below(1000) < lost
            }
        }
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        let uniform = (self.random.below(1 << 24) + 1) as f64 / f64::from(1 << 24);
        mean.mul_f64(-uniform.ln()) + Duration::from_micros(1)
    }

    /// The arrival time if there is always room for it.
    fn certain_arrival(&mut self, now: Duration, bytes: usize) -> Duration {
        let Some(bottleneck) = self.path.bottleneck else {
            return self.arrival(now);
        };
        let takes = Duration::from_secs_f64(bytes as f64 / bottleneck.bytes_per_second);
        self.free = self.free.max(now) + takes;
        self.arrival(self.free)
    }

    fn arrival(&mut self, now: Duration) -> Duration {
        self.sent += 1;
        let at = match self.path.delay {
            Delay::Steady(delay) => now + delay,
            Delay::Step { before, at, .. } if now < at => now + before,
            Delay::Step { after, .. } => now + after,
            Delay::Alternating(odd, _) if self.sent % 2 == 1 => now + odd,
            Delay::Alternating(_, even) => now + even,
            Delay::Jitter(least, most) => {
                let range = (most - least).as_nanos() as usize;
                now + least + Duration::from_nanos(self.random.below(range + 1) as u64)
            }
            Delay::Stalls {
                delay,
                every,
                length,
            } => {
                let arrives = now + delay;
                let into = arrives.as_nanos() % every.as_nanos();
                match into < (every - length).as_nanos() {
                    true => arrives,
                    false => arrives + every - Duration::from_nanos(into as u64),
                }
            }
        };
        if self.random.below(1000) < self.path.reordered {
            let late = self.random.below(self.path.late.as_nanos() as usize) as u64;
            return at.max(self.last) + Duration::from_nanos(late);
        }
        self.last = at.max(self.last);
        self.last
    }
}

/// The writes of an application: their times, and their bytes.
pub type Writes = Vec<(Duration, usize)>;

/// Small writes, some milliseconds apart.
pub fn trickle(random: &mut Random) -> Writes {
    let mut at = Duration::ZERO;
    (0..20 + random.below(40))
        .map(|_| {
            at += ms(1 + random.below(40) as u64);
            (at, 1 + random.below(1500))
        })
        .collect()
}

/// Bursts of one to five messages, as a server pushes them.
pub fn push(random: &mut Random) -> Writes {
    let mut writes = Vec::new();
    let mut at = Duration::ZERO;
    for _ in 0..40 {
        at += ms(1 + random.below(60) as u64);
        for _ in 0..1 + random.below(5) {
            writes.push((at, 20 + random.below(280)));
        }
    }
    writes
}

/// A single write.
pub fn bulk(random: &mut Random) -> Writes {
    vec![(Duration::ZERO, 50_000 + random.below(350_000))]
}

/// Three small writes, a pause, and many bytes at once.
pub fn trickle_then_bulk(random: &mut Random) -> Writes {
    let size = 1 + random.below(1500);
    let pause = ms(20 + random.below(500) as u64);
    vec![
        (ms(0), size),
        (ms(10), size),
        (ms(20), size),
        (ms(20) + pause, 100_000 + random.below(200_000)),
    ]
}

/// More than fits into any window of [`narrow paths`](PATHS).
pub fn long(random: &mut Random) -> Writes {
    vec![(Duration::ZERO, 1_000_000 + random.below(2_000_000))]
}

/// A value that a seed chooses.
type Choice<T> = fn(&mut Random) -> T;

/// The shapes by name.
pub const SHAPES: [(&str, Choice<Writes>); 5] = [
    ("long", long),
    ("trickle", trickle),
    ("push", push),
    ("bulk", bulk),
    ("trickle-then-bulk", trickle_then_bulk),
];

/// Kinds of paths by name, each with the seed's choice: the way there and the way back.
pub const PATHS: [(&str, Choice<(Path, Path)>); 10] = [
    ("steady", |random| {
        both(Delay::Steady(ms(random.below(50) as u64)))
    }),
    ("step up", |random| {
        let step = Delay::Step {
            before: ms(random.below(5) as u64),
            after: ms(10 + random.below(60) as u64),
            at: ms(50 + random.below(500) as u64),
        };
        both(step)
    }),
    ("step down", |random| {
        let step = Delay::Step {
            before: ms(10 + random.below(60) as u64),
            after: ms(random.below(5) as u64),
            at: ms(50 + random.below(500) as u64),
        };
        both(step)
    }),
    ("alternating", |random| {
        let most = 2 + random.below(20) as u64;
        both(Delay::Alternating(ms(1), ms(most)))
    }),
    ("jitter", |random| {
        let most = 2 + random.below(40) as u64;
        both(Delay::Jitter(ms(most / 10), ms(most)))
    }),
    ("stalls", |random| {
        let length = ms(300 + random.below(3000) as u64);
        let stalls = Delay::Stalls {
            delay: ms(random.below(30) as u64),
            every: length + ms(300 + random.below(2000) as u64),
            length,
        };
        (Path::new(stalls.clone()), Path::new(stalls))
    }),
    ("reordering", |random| {
        let delay = ms(1 + random.below(40) as u64);
        let path = Path {
            reordered: 10 + random.below(100),
            late: delay / 2,
            ..Path::new(Delay::Steady(delay))
        };
        (path.clone(), path)
    }),
    ("duplicates", |random| {
        let path = Path {
            duplicated: 50 + random.below(300),
            ..Path::new(Delay::Steady(ms(random.below(40) as u64)))
        };
        (path.clone(), path)
    }),
    ("narrow", |random| {
        narrow(Delay::Steady(ms(random.below(50) as u64)), random)
    }),
    ("narrow with jitter", |random| {
        let most = 2 + random.below(20) as u64;
        narrow(Delay::Jitter(ms(most / 10), ms(most)), random)
    }),
];

/// A path of 5 to 100 Mbit/s whose queue holds 10 to 100 ms.
fn narrow(delay: Delay, random: &mut Random) -> (Path, Path) {
    let bottleneck = Bottleneck {
        bytes_per_second: (5 + random.below(96)) as f64 * 125e3,
        queue: ms(10 + random.below(91) as u64),
    };
    let there = Path {
        bottleneck: Some(bottleneck),
        ..Path::new(delay.clone())
    };
    (there, Path::new(delay))
}

fn both(delay: Delay) -> (Path, Path) {
    (Path::new(delay.clone()), Path::new(delay))
}

/// One case: its path, its writes, and the seed of all choices.
pub struct Case {
    pub there: Path,
    pub back: Path,
    pub writes: Writes,
    /// The receiver's window, in units of 128 bytes.
    pub window: u16,
    pub seed: u64,
}

impl Case {
    /// The case of these numbers in [`PATHS`] and [`SHAPES`].
    pub fn new(path: usize, shape: usize, seed: u64) -> Case {
        let mut random = Random(seed);
        let (there, back) = PATHS[path].1(&mut random);
        Case {
            there,
            back,
            writes: SHAPES[shape].1(&mut random),
            window: u16::MAX >> random.below(5),
            seed,
        }
    }

    pub fn ways(&self) -> (Way, Way) {
        (
            Way::new(self.there.clone(), self.seed ^ 1),
            Way::new(self.back.clone(), self.seed ^ 2),
        )
    }

    /// The time that chance accounts for: a slightly slower sender may meet a stall that another
    /// just misses.
    pub fn luck(&self) -> Duration {
        match self.there.delay {
            Delay::Stalls { length, .. } => length,
            _ => Duration::ZERO,
        }
    }

    /// The time of an ideal sender: it begins with ten segments, sends one more for each that
    /// arrives, knows which are late, and loses nothing. No TCP needs less. Counts from the end of
    /// the handshake, which takes one round trip.
    pub fn ideal(&self) -> Duration {
        let (mut there, mut back) = self.ways();
        let begun = back.arrival(there.arrival(Duration::ZERO));
        let (mut there, mut back) = self.ways();
        let mut acknowledged: BinaryHeap<Reverse<Duration>> = BinaryHeap::new();
        let mut writes = self.writes.iter().peekable();
        let (mut window, mut flight, mut unsent) = (INITIAL, 0, 0);
        let (mut now, mut done) = (begun, begun);
        loop {
            while let Some((_, bytes)) = writes.next_if(|(at, _)| begun + *at <= now) {
                unsent += bytes;
            }
            while acknowledged.peek().is_some_and(|Reverse(at)| *at <= now) {
                acknowledged.pop();
                flight -= 1;
                window += 1;
            }
            while unsent > 0 && flight < window {
                let bytes = unsent.min(SEGMENT);
                unsent -= bytes;
                flight += 1;
                let arrives = there.certain_arrival(now, bytes + HEADERS);
                done = done.max(arrives);
                acknowledged.push(Reverse(back.arrival(arrives)));
            }
            let write = writes.peek().map(|(at, _)| begun + *at);
            let next = acknowledged.peek().map(|Reverse(at)| *at);
            match [write, next].into_iter().flatten().min() {
                Some(at) => now = at,
                None => return done - begun,
            }
        }
    }
}
