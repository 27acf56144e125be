//! Both ends of a connection, and the network between them.
//!
//! The program writes, reads and closes on both sides, and decides about each packet: it arrives, is
//! lost, comes twice or after others, or is changed on its way. The model is two queues of bytes: each
//! side reads a beginning of what the other wrote, whatever is changed. If nothing was changed, everything
//! arrives in the end, and both sides end.

use std::time::Duration;

use smoltcp::wire::checksum;
use watm_core::{ErrorCode, Host, Instant};
use watm_netstack::Config;

use crate::connections::byte;
use crate::packet;
use crate::program::Program;
use crate::support::inner::{Bench, StreamEnd, origin};

const PEER: u32 = 1;
/// The most packets on their way to one side; further ones are lost.
const QUEUED: usize = 256;
/// The most bytes that a side writes.
const MOST: u32 = 400_000;
/// The time in which everything arrives, once the network is good.
const PATIENCE: Duration = Duration::from_secs(1800);
/// The round trip of a good network.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The time after which a side no longer answers repeated FINs with acknowledgements, but with resets.
const TIME_WAIT: Duration = Duration::from_secs(10);

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new(&mut program);
    while let Some(step) = program.step(12) {
        let to = program.below(2);
        match step {
            0..=3 => world.deliver(to, program.below(8) + 1),
            4 => world.lose(to, program.below(8) + 1),
            5 => world.repeat(to, &mut program),
            6 => world.reorder(to, &mut program),
            7 => world.change(to, &mut program),
            8 => {
                let time = program.choose(&[1, 3, 40, 250, 1_000, 11_000, 61_000]);
                world.wait(Duration::from_millis(time));
            }
            _ => world.application(to, &mut program),
        }
        world.check();
    }
    world.end();
}

/// One side: a stack, its application, and the packets on their way to it.
struct Side {
    bench: Bench,
    stream: Option<StreamEnd>,
    queue: Vec<Vec<u8>>,
    written: u32,
    read: u32,
    closed: bool,
    aborted: bool,
    /// The time at which its stack had no flow any more.
    over_since: Option<Instant>,
}

struct World {
    sides: [Side; 2],
    /// True while packets only come late, twice or not at all.
    honest: bool,
}

/// The byte that a side writes at a place.
fn content(side: usize, place: u32) -> u8 {
    byte(place.wrapping_add(side as u32 * 0x4000_0000))
}

impl Side {
    fn new(config: &Config) -> Side {
        Side {
            bench: Bench::new(config.clone()),
            stream: None,
            queue: Vec::new(),
            written: 0,
            read: 0,
            closed: false,
            aborted: false,
            over_since: None,
        }
    }

    fn receive(&mut self, packet: &[u8]) {
        let bench = &mut self.bench;
        bench
            .stack
            .handle_packet(&origin(PEER), packet, &mut bench.app, &mut bench.sent);
    }

    /// Let everything happen that can happen now. Returns the packets.
    fn rest(&mut self) -> Vec<Vec<u8>> {
        self.bench.rest();
        if self.stream.is_none() {
            self.stream = self.bench.app.streams().first().cloned();
        }
        let sent = std::mem::take(&mut self.bench.sent.0);
        sent.into_iter().map(|(_, packet)| packet).collect()
    }

    fn is_over(&self) -> bool {
        self.bench.stack.flows() == 0
    }
}

impl World {
    fn new(program: &mut Program<'_>) -> World {
        let config = Config {
            mtu: program.choose(&[1420, 1280, 9000, 1420]),
            buffer_budget: 8 << 20,
            ..Config::default()
        };
        let mut dialling = Side::new(&config);
        let to = "192.0.2.1:443".parse().expect("an address");
        dialling.stream = dialling.bench.dial(PEER, to).ok();
        World {
            sides: [dialling, Side::new(&config)],
            honest: true,
        }
    }

    /// The first packets on their way to a side arrive, in one batch.
    fn deliver(&mut self, to: usize, count: usize) {
        let side = &mut self.sides[to];
        let count = count.min(side.queue.len());
        for packet in side.queue.drain(..count).collect::<Vec<_>>() {
            side.receive(&packet);
        }
    }

    fn lose(&mut self, to: usize, count: usize) {
        let queue = &mut self.sides[to].queue;
        queue.drain(..count.min(queue.len()));
    }

    fn repeat(&mut self, to: usize, program: &mut Program<'_>) {
        let queue = &mut self.sides[to].queue;
        if !queue.is_empty() {
            let again = queue[program.below(queue.len())].clone();
            let at = program.below(queue.len() + 1);
            queue.insert(at, again);
        }
    }

    fn reorder(&mut self, to: usize, program: &mut Program<'_>) {
        let queue = &mut self.sides[to].queue;
        if queue.len() > 1 {
            let packet = queue.remove(program.below(queue.len()));
            let at = program.below(queue.len() + 1);
            queue.insert(at, packet);
        }
    }

    /// Changes a header, as somebody who sees the packets can: its checksum is right again.
    fn change(&mut self, to: usize, program: &mut Program<'_>) {
        let side = &mut self.sides[to];
        if side.queue.is_empty() {
            return;
        }
        let at = program.below(side.queue.len());
        let packet = &mut side.queue[at];
        let kind = program.below(10);
        if let Some(changed) = change(packet, kind, program) {
            *packet = changed;
            // A router may set the ECN field.
            self.honest &= kind == CONGESTION;
        }
    }

    fn wait(&mut self, time: Duration) {
        for side in &mut self.sides {
            side.bench.pass(time);
        }
    }

    fn application(&mut self, number: usize, program: &mut Program<'_>) {
        let side = &mut self.sides[number];
        let Some(stream) = side.stream.clone() else {
            return;
        };
        match program.below(12) {
            0 if !side.closed => {
                side.closed = true;
                stream.close();
            }
            1 if program.one_in(4) => {
                side.aborted = true;
                stream.abort();
            }
            2 => stream.set_room(program.choose(&[0, 1, 1000, 5000])),
            3 => stream.make_room(usize::MAX),
            4..8 if !side.closed && !side.aborted => {
                let length = program.choose(&[1, 100, 1380, 5000, 70_000]);
                let length = length.min(MOST - side.written);
                let places = side.written..side.written + length;
                let data: Vec<u8> = places.map(|place| content(number, place)).collect();
                side.written += length;
                stream.write(&data);
            }
            _ => self.read(number),
        }
    }

    /// Read, and check that it is what the other side wrote.
    fn read(&mut self, number: usize) {
        let written = self.sides[1 - number].written;
        let side = &mut self.sides[number];
        let Some(stream) = &side.stream else {
            return;
        };
        for said in stream.read() {
            assert!(side.read < written, "more is read than was written");
            assert_eq!(said, content(1 - number, side.read), "a wrong byte is read");
            side.read += 1;
        }
    }

    /// Let everything happen that can happen now, and check what holds then.
    fn check(&mut self) {
        for number in 0..2 {
            let side = &mut self.sides[number];
            let mtu = 9000;
            for packet in side.rest() {
                packet::check(&packet, mtu);
                let queue = &mut self.sides[1 - number].queue;
                if queue.len() < QUEUED {
                    queue.push(packet);
                }
            }
            let side = &mut self.sides[number];
            if side.stream.is_some() && side.is_over() {
                side.over_since.get_or_insert(side.bench.app.now());
            }
            let stack = &self.sides[number].bench.stack;
            let has_timer = stack.poll_timeout().is_some();
            assert!(
                stack.flows() == 0 || has_timer,
                "a live flow without a timer"
            );
            assert!(stack.held_bytes() <= 8 << 20, "too much memory");
            let without = self.sides[number].bench.counter("tcp_without_timer");
            assert_eq!(without, 0, "a flow had bytes to send and no timer");
        }
        let whole = self.honest && !self.sides.iter().any(|side| side.aborted);
        let reset = |number: usize| Some((number, self.sides[number].stream.as_ref()?.reset()?));
        if whole && let Some((number, reason)) = (0..2).find_map(reset) {
            let may = self.may_reset(number, &reason);
            assert!(may, "a reset that nobody sent: {reason:?}");
            self.honest = false;
        }
    }

    /// Returns true if the network alone may have caused the reset of a side. It carried nothing for minutes, or for
    /// seconds in a handshake. Or the other side, which is over and has everything, has forgotten the connection.
    fn may_reset(&self, number: usize, reason: &ErrorCode) -> bool {
        let (side, other) = (&self.sides[number], &self.sides[1 - number]);
        let opened = self.sides[1].stream.is_some();
        let forgotten = other.over_since.is_some_and(|since| {
            other.bench.app.now() - since >= TIME_WAIT && side.closed && other.read == side.written
        });
        !opened || *reason == ErrorCode::Timeout || forgotten
    }

    /// Makes the network good, closes, and checks that everything arrives if nothing was changed.
    fn end(mut self) {
        for side in &mut self.sides {
            if let Some(stream) = &side.stream {
                stream.make_room(usize::MAX);
            }
        }
        let whole = self.run_out();
        if !whole {
            return;
        }
        let [here, there] = &self.sides;
        assert_eq!(here.read, there.written, "bytes are missing");
        assert_eq!(there.read, here.written, "bytes are missing");
        for side in &mut self.sides {
            side.bench.pass(Duration::from_secs(120));
            let stack = &side.bench.stack;
            assert_eq!((stack.held_bytes(), stack.is_idle()), (0, true));
        }
    }

    /// Returns true if both sides ended, and nothing was changed.
    fn run_out(&mut self) -> bool {
        let begun = self.sides[0].bench.app.now();
        loop {
            self.check();
            for number in 0..2 {
                self.read(number);
                let side = &mut self.sides[number];
                if let (false, Some(stream)) = (side.closed, &side.stream) {
                    side.closed = true;
                    stream.close();
                }
            }
            self.check();
            let whole = self.honest && !self.sides.iter().any(|side| side.aborted);
            let opened = self.sides.iter().all(|side| side.stream.is_some());
            if opened && self.sides.iter().all(Side::is_over) {
                return whole;
            }
            let waited = self.sides[0].bench.app.now() - begun;
            if waited > PATIENCE {
                assert!(!whole, "no end");
                return false;
            }
            self.wait(ROUND_TRIP / 2);
            for number in 0..2 {
                self.deliver(number, usize::MAX);
            }
            if self.sides.iter().all(|side| side.queue.is_empty()) {
                self.wait(self.silence());
            }
        }
    }

    /// The time until one side does something.
    fn silence(&self) -> Duration {
        let due = self.sides.iter().map(|side| {
            let now = side.bench.app.now();
            let at = side.bench.stack.poll_timeout();
            at.map_or(PATIENCE, |at| at.max(now) - now)
        });
        due.min().unwrap_or_default()
    }
}

/// The kind of change that a router may make.
const CONGESTION: usize = 0;

/// A changed copy of an IPv4 packet with a segment.
fn change(packet: &[u8], kind: usize, program: &mut Program<'_>) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    if packet[9] != 6 {
        return None;
    }
    let word = u32::from(program.word());
    let segment = &mut packet[20..];
    let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match kind {
        CONGESTION => {
            packet[1] |= 3;
            packet[10..12].fill(0);
            let sum = !checksum::data(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            return Some(packet);
        }
        // An acknowledgement of more, or of less.
        1 => {
            let changed = number(&segment[8..12]).wrapping_add(word);
            segment[8..12].copy_from_slice(&changed.to_be_bytes());
        }
        2 => {
            let changed = number(&segment[8..12]).wrapping_sub(word);
            segment[8..12].copy_from_slice(&changed.to_be_bytes());
        }
        // Another window.
        3 => segment[14..16].copy_from_slice(&(word as u16).to_be_bytes()),
        // Other flags: ECE, CWR, URG, PSH, and now and then any.
        4 => segment[13] ^= program.choose(&[0x40, 0x80, 0xc0, 0x20, 0x08, 0x10]),
        5 => segment[13] = program.byte(),
        // SACK blocks, timestamps and other options that lie.
        6 | 7 => change_option(segment, program)?,
        // The segment moves.
        8 => {
            let changed = number(&segment[4..8])
                .wrapping_add(word)
                .wrapping_sub(1 << 15);
            segment[4..8].copy_from_slice(&changed.to_be_bytes());
            segment[13] |= 4;
        }
        _ => segment[18..20].copy_from_slice(&(word as u16).to_be_bytes()),
    }
    let addresses = [number(&packet[12..16]), number(&packet[16..20])];
    let [from, to] = addresses.map(|address| std::net::Ipv4Addr::from(address).into());
    let segment = &mut packet[20..];
    segment[16..18].fill(0);
    let header = checksum::pseudo_header(&from, &to, 6.into(), segment.len() as u32);
    let sum = !checksum::combine(&[header, checksum::data(segment)]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

/// Changes a number within an option; `None` if there is no option.
fn change_option(segment: &mut [u8], program: &mut Program<'_>) -> Option<()> {
    let header = usize::from(segment[12] >> 4) * 4;
    let options = segment
        .get_mut(20..header)
        .filter(|options| !options.is_empty())?;
    let length = options.len();
    let at = program.below(length);
    options[at] = program.byte();
    Some(())
}
