//! The peer of a `run` statement: a receiver with SACK behind a path with a delay, a bottleneck and
//! losses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use watm_core::Instant;

use super::values::{Names, duration, number, whole};

/// The longest delay of an acknowledgement.
const DELAY: Duration = Duration::from_millis(40);

/// The path, and the way in which the peer acknowledges.
#[derive(Debug, Clone)]
pub struct Path {
    pub time: Duration,
    pub rtt: Duration,
    /// The segments for an acknowledgement.
    pub every: u32,
    /// Bytes per second, and the longest wait before the bottleneck.
    pub rate: Option<(f64, Duration)>,
    /// The numbers of lost segments, counted from 1 in this run.
    pub lose: Vec<(u64, u64)>,
    pub lose_every: Option<u64>,
    pub mark: Vec<(u64, u64)>,
    /// The longest packet that passes, in bytes.
    pub longest: usize,
    /// The run ends when this much is acknowledged.
    pub until: Option<i64>,
}

impl Path {
    /// Reads the words after `run`.
    pub fn parse(words: &[String], rtt: Duration, names: &Names) -> Result<Path, String> {
        let [time, rest @ ..] = words else {
            return Err("run needs a time".into());
        };
        let mut path = Path {
            time: duration(time)?,
            rtt,
            every: 2,
            rate: None,
            lose: Vec::new(),
            lose_every: None,
            mark: Vec::new(),
            longest: usize::MAX,
            until: None,
        };
        let mut queue = Duration::from_secs(3600);
        for pair in rest.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("{:?} has no value", pair[0]));
            };
            match name.as_str() {
                "rtt" => path.rtt = duration(value)?,
                "every" => path.every = number(value, names)? as u32,
                // In Mbit/s.
                "rate" => path.rate = Some((number(value, names)? * 125e3, queue)),
                "queue" => queue = duration(value)?,
                "lose" => path.lose = numbers(value)?,
                "lose-every" => path.lose_every = Some(whole(value, names)? as u64),
                "mark" => path.mark = numbers(value)?,
                "longest" => path.longest = whole(value, names)? as usize,
                "acked" => path.until = Some(whole(value, names)?),
                other => return Err(format!("run knows no {other:?}")),
            }
        }
        if let Some((_, limit)) = &mut path.rate {
            *limit = queue;
        }
        Ok(path)
    }

    fn loses(&self, count: u64) -> bool {
        is_in(&self.lose, count)
            || self
                .lose_every
                .is_some_and(|every| count.is_multiple_of(every))
    }
}

fn is_in(ranges: &[(u64, u64)], number: u64) -> bool {
    ranges
        .iter()
        .any(|(least, most)| (*least..=*most).contains(&number))
}

/// `3,5-7,9-`.
fn numbers(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let one = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    let ranges = text.split(',').map(|part| match part.split_once('-') {
        Some((least, "")) => Ok((one(least)?, u64::MAX)),
        Some((least, most)) => Ok((one(least)?, one(most)?)),
        None => Ok((one(part)?, one(part)?)),
    });
    ranges.collect()
}

/// A piece of the stack's bytes on its way to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    pub start: i64,
    pub end: i64,
    pub timestamp: Option<u32>,
    pub marked: bool,
    pub reduced: bool,
}

/// The content of an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    pub ack: i64,
    pub blocks: Vec<(i64, i64)>,
    pub echo: Option<u32>,
    pub ece: bool,
}

/// An event of the path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Arrives(Piece),
    Answers(Answer),
}

/// The measures of a run.
#[derive(Debug, Clone, Default)]
pub struct Measures {
    /// The most unacknowledged bytes while there was no gap.
    pub flight: i64,
    /// True if the last acknowledgement reported a gap.
    pub gap: bool,
    pub sent: i64,
    pub resent: i64,
    pub segments: u64,
    pub lost: u64,
    /// The most segments at one time.
    pub burst: u64,
    /// The longest payload.
    pub longest: i64,
    at_once: u64,
    last: Option<Instant>,
}

impl Measures {
    pub fn sent(&mut self, piece: Piece, next: i64, acked: i64, now: Instant) {
        let length = piece.end - piece.start;
        let new = (piece.end - next).clamp(0, length);
        self.sent += new;
        self.resent += length - new;
        self.segments += 1;
        self.longest = self.longest.max(length);
        if !self.gap && new > 0 {
            self.flight = self.flight.max(piece.end - acked);
        }
        self.at_once = match self.last == Some(now) {
            true => self.at_once + 1,
            false => 1,
        };
        self.last = Some(now);
        self.burst = self.burst.max(self.at_once);
    }
}

/// The peer, and the packets on their way.
#[derive(Debug, Default)]
pub struct Receiver {
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    count: u64,
    free: Instant,
    next: i64,
    /// Received blocks, the last changed first.
    blocks: Vec<(i64, i64)>,
    unanswered: u32,
    due: Option<Instant>,
    echo: Option<u32>,
    ece: bool,
}

impl Receiver {
    /// A peer that has everything before this number.
    pub fn new(next: i64) -> Receiver {
        Receiver {
            next,
            ..Receiver::default()
        }
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    /// Takes a segment, the `number`th of the run. Returns false if it is lost.
    pub fn carry(
        &mut self,
        mut piece: Piece,
        bytes: usize,
        number: u64,
        path: &Path,
        now: Instant,
    ) -> bool {
        if path.loses(number) || bytes > path.longest {
            return false;
        }
        piece.marked = is_in(&path.mark, number);
        let mut leaves = now;
        if let Some((rate, queue)) = path.rate {
            if self.free > now + queue {
                return false;
            }
            self.free = self.free.max(now) + Duration::from_secs_f64(bytes as f64 / rate);
            leaves = self.free;
        }
        self.push(leaves + path.rtt / 2, Event::Arrives(piece));
        true
    }

    pub fn due(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        [event, self.due].into_iter().flatten().min()
    }

    /// Lets what is due happen. Returns the acknowledgements that reach the stack.
    pub fn pass(&mut self, path: &Path, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= now
            && let Some(Reverse((_, _, event))) = self.events.pop()
        {
            match event {
                Event::Arrives(piece) => self.take(piece, path, now),
                Event::Answers(answer) => answers.push(answer),
            }
        }
        if self.due.is_some_and(|at| at <= now) {
            self.answer(None, path, now);
        }
        answers
    }

    fn take(&mut self, piece: Piece, path: &Path, now: Instant) {
        self.ece = (self.ece && !piece.reduced) || piece.marked;
        if piece.start <= self.next {
            self.echo = piece.timestamp.or(self.echo);
        }
        let known = |(start, end): &(i64, i64)| *start <= piece.start && piece.end <= *end;
        if piece.end <= self.next || self.blocks.iter().any(known) {
            self.answer(Some((piece.start, piece.end)), path, now);
            return;
        }
        let in_order = piece.start <= self.next && self.blocks.is_empty();
        let mut block = (piece.start, piece.end);
        self.blocks.retain(|(start, end)| {
            let apart = *start > block.1 || block.0 > *end;
            if !apart {
                block = (block.0.min(*start), block.1.max(*end));
            }
            apart
        });
        self.blocks.insert(0, block);
        if block.0 <= self.next {
            self.next = block.1;
            self.blocks.remove(0);
        }
        self.unanswered += 1;
        match in_order && self.unanswered < path.every {
            true => self.due = self.due.or(Some(now + DELAY)),
            false => self.answer(None, path, now),
        }
    }

    fn answer(&mut self, twice: Option<(i64, i64)>, path: &Path, now: Instant) {
        self.unanswered = 0;
        self.due = None;
        let blocks = twice.into_iter().chain(self.blocks.iter().copied());
        let answer = Answer {
            ack: self.next,
            blocks: blocks.take(3).collect(),
            echo: self.echo,
            ece: self.ece,
        };
        self.push(now + path.rtt / 2, Event::Answers(answer));
    }
}
