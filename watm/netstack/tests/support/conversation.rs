//! Conversations of two ends over a bad network, in virtual time. Both write, read, pause and close as
//! a seed chooses. One end is the stack; the other is another one, or smoltcp.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::State;
use watm_core::{Host, Instant};
use watm_netstack::Config;

use super::path::{Bottleneck, Delay, Loss, Path, Way};
use super::{Bench, Client, Random, StreamEnd, origin, packets};

/// The other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// Another stack, which is dialled.
    Stack,
    /// smoltcp, which is dialled.
    Accepts,
    /// smoltcp, which dials.
    Dials,
}

/// The time after the last write within which everything must have arrived, and both ends closed.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// The same for the time after a reset, which its peer may have to notice by a keep-alive.
const RESET_LIMIT: Duration = Duration::from_secs(1200);
/// The most events of a conversation.
const EVENTS: u64 = 40_000_000;
/// The most bytes of one write.
const CHUNK: usize = 64 << 10;

/// The actions of the application of one end.
#[derive(Debug, Clone)]
struct Plan {
    /// The times of writes, and their bytes.
    writes: Vec<(Duration, usize)>,
    /// The time from the last write to the end.
    lingers: Duration,
    /// The bytes that wait for the application at most.
    room: usize,
    /// The time from one read to the next, and a pause of reading.
    reads_every: Duration,
    pause: Option<(Duration, Duration)>,
    aborts: Option<Duration>,
}

/// A conversation.
#[derive(Debug, Clone)]
pub struct Conversation {
    seed: u64,
    other: Other,
    is_ipv6: bool,
    mtu: usize,
    /// The buffer of smoltcp in bytes.
    buffer: usize,
    plans: [Plan; 2],
    paths: [Path; 2],
    /// True to print each packet.
    pub traces: bool,
}

fn ms(milliseconds: usize) -> Duration {
    Duration::from_millis(milliseconds as u64)
}

/// A number from 1 to `2^bits`, small ones as often as large ones.
fn of_any_size(random: &mut Random, bits: usize) -> usize {
    let most = 1 << random.below(bits + 1);
    1 + random.below(most)
}

impl Conversation {
    pub fn new(seed: u64, other: Other) -> Conversation {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(other as u64));
        let random = &mut random;
        let is_ipv6 = random.below(3) == 0;
        // A path that loses much ends an idle connection: few probes ask for its peer.
        let idles = random.below(5) == 0;
        let plans = [plan(random, idles), plan(random, idles)];
        let mut paths = [path(random, is_ipv6, idles), path(random, is_ipv6, idles)];
        if other != Other::Stack {
            // smoltcp does not look for the MTU of a path.
            paths[1].longest.clear();
        }
        Conversation {
            seed,
            other,
            is_ipv6,
            mtu: [1420, 1280, 1420, 1500, 9000][random.below(5)],
            buffer: 2048 << random.below(10),
            plans,
            paths,
            traces: false,
        }
    }

    /// Runs it. Returns its length in virtual time.
    pub fn run(&self) -> Result<Duration, String> {
        let mut table = Table::new(self);
        let outcome = table.run();
        let at = table.now;
        outcome.map(|()| at).map_err(|reason| {
            let other = self.other;
            format!(
                "seed {} with {other:?}, after {at:?}: {reason}\n{self:#?}",
                self.seed
            )
        })
    }
}

fn plan(random: &mut Random, idles: bool) -> Plan {
    let longest = if idles { 1800 } else { 60 };
    let mut at = Duration::ZERO;
    let mut writes = Vec::new();
    for _ in 0..random.below(30) {
        at += match random.below(20) {
            0 => Duration::from_secs(random.below(longest) as u64),
            1..4 => ms(random.below(60_000)),
            4..10 => ms(random.below(500)),
            _ => Duration::ZERO,
        };
        writes.push((at, of_any_size(random, 18)));
    }
    if random.below(4) == 0 {
        writes.push((at, of_any_size(random, 22)));
    }
    let quick = random.below(3) > 0;
    Plan {
        lingers: match random.below(4) {
            0 => Duration::ZERO,
            1 => ms(random.below(200)),
            2 => Duration::from_secs(random.below(30) as u64),
            _ => Duration::from_secs(random.below(4 * longest) as u64),
        },
        room: match random.below(3) {
            0 => 512 << random.below(8),
            _ => usize::MAX,
        },
        reads_every: if quick {
            Duration::ZERO
        } else {
            ms(random.below(700))
        },
        pause: (random.below(3) == 0).then(|| {
            let from = ms(random.below(3000));
            (from, from + ms(random.below(500 * longest)))
        }),
        aborts: (random.below(12) == 0).then(|| ms(of_any_size(random, 17))),
        writes,
    }
}

fn path(random: &mut Random, is_ipv6: bool, idles: bool) -> Path {
    let least = ms(random.below(100));
    let delay = match random.below(6) {
        0 => Delay::Jitter(least, least + ms(of_any_size(random, 7))),
        1 => Delay::Alternating(least, least + ms(random.below(30))),
        2 => Delay::Step {
            before: least,
            after: ms(random.below(300)),
            at: ms(of_any_size(random, 16)),
        },
        3 => {
            let length = ms(100 + of_any_size(random, 13));
            Delay::Stalls {
                delay: least,
                every: length + ms(500 + random.below(10_000)),
                length,
            }
        }
        _ => Delay::Steady(least),
    };
    let bad = ms(of_any_size(random, 10));
    let loss = match random.below(4) {
        0 if idles => Loss::Random(of_any_size(random, 3)),
        0 => Loss::Random(of_any_size(random, 6)),
        1 if !idles => Loss::Bursts {
            good: bad * (10 + random.below(50) as u32),
            bad,
            lost: 300 + random.below(701),
        },
        _ => Loss::None,
    };
    let narrowest = if is_ipv6 { 1280 } else { 576 };
    let longest = match random.below(4) {
        0 => (0..1 + random.below(3))
            .map(|number| {
                let at = ms(number * random.below(20_000));
                (at, narrowest + random.below(1000))
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut longest: Vec<(Duration, usize)> = longest;
    longest.sort_unstable();
    Path {
        bottleneck: (random.below(2) == 0).then(|| Bottleneck {
            bytes_per_second: 10_000.0 * of_any_size(random, 11) as f64,
            queue: ms(20 + random.below(400)),
        }),
        reordered: [0, 0, random.below(100)][random.below(3)],
        late: ms(1 + random.below(80)),
        duplicated: [0, 0, random.below(200)][random.below(3)],
        loss,
        damaged: [0, 0, 0, of_any_size(random, 6)][random.below(4)],
        longest,
        ..Path::new(delay)
    }
}

/// One end.
enum End {
    Stack(Box<Bench>, Option<StreamEnd>),
    Smoltcp(Box<Client>, SocketHandle),
}

/// The byte at an offset of a direction.
fn pattern(side: usize, offset: usize) -> u8 {
    ((offset % 251) ^ (offset >> 12) ^ (side * 85)) as u8
}

impl End {
    fn next(&mut self, now: Instant) -> Option<Instant> {
        match self {
            End::Stack(bench, _) => bench.stack.poll_timeout(),
            End::Smoltcp(client, _) => client.next(now),
        }
    }

    /// Lets it do what is due. Returns its packets.
    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        match self {
            End::Stack(bench, stream) => {
                if bench.stack.poll_timeout().is_some_and(|at| at <= now) {
                    bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
                }
                let packets = bench.settle();
                if stream.is_none() {
                    *stream = bench.app.streams().first().cloned();
                }
                packets
            }
            End::Smoltcp(client, _) => client.poll(now),
        }
    }

    fn receive(&mut self, packet: Vec<u8>) {
        match self {
            End::Stack(bench, _) => {
                bench
                    .stack
                    .handle_packet(&origin(1), &packet, &mut bench.app, &mut bench.sent);
            }
            End::Smoltcp(client, _) => client.receive(packet),
        }
    }

    fn set_now(&mut self, now: Instant) {
        if let End::Stack(bench, _) = self {
            bench.app.set_now(now);
        }
    }

    /// True if the application can write.
    fn is_open(&mut self) -> bool {
        match self {
            End::Stack(_, stream) => stream.is_some(),
            End::Smoltcp(client, handle) => client.socket(*handle).may_send(),
        }
    }

    /// Writes, and returns the bytes that were taken.
    fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            End::Stack(_, Some(stream)) => {
                stream.write(bytes);
                bytes.len()
            }
            End::Stack(..) => 0,
            End::Smoltcp(client, handle) => client.socket(*handle).send_slice(bytes).unwrap_or(0),
        }
    }

    /// The bytes that wait for the stack.
    fn unsent(&mut self) -> usize {
        match self {
            End::Stack(_, Some(stream)) => stream.unsent(),
            _ => 0,
        }
    }

    fn read(&mut self) -> Vec<u8> {
        match self {
            End::Stack(_, Some(stream)) => stream.read(),
            End::Stack(..) => Vec::new(),
            End::Smoltcp(client, handle) => {
                let socket = client.socket(*handle);
                let mut all = Vec::new();
                while socket.can_recv() {
                    let mut buffer = vec![0; 65536];
                    let count = socket.recv_slice(&mut buffer).unwrap_or(0);
                    all.extend_from_slice(&buffer[..count]);
                }
                all
            }
        }
    }

    fn close(&mut self) {
        match self {
            End::Stack(_, Some(stream)) => stream.close(),
            End::Stack(..) => {}
            End::Smoltcp(client, handle) => client.socket(*handle).close(),
        }
    }

    fn abort(&mut self) {
        match self {
            End::Stack(_, Some(stream)) => stream.abort(),
            End::Stack(..) => {}
            End::Smoltcp(client, handle) => client.socket(*handle).abort(),
        }
    }

    /// The reason of a reset.
    fn reset(&mut self) -> Option<String> {
        match self {
            End::Stack(_, stream) => {
                let reason = stream.as_ref().and_then(StreamEnd::reset);
                reason.map(|reason| format!("{reason:?}"))
            }
            End::Smoltcp(..) => None,
        }
    }

    /// True if nothing is left of the connection, or only TIME-WAIT.
    fn is_over(&mut self) -> bool {
        match self {
            End::Stack(bench, stream) => stream.is_some() && bench.stack.flows() == 0,
            End::Smoltcp(client, handle) => {
                matches!(
                    client.socket(*handle).state(),
                    State::Closed | State::TimeWait
                )
            }
        }
    }

    /// True if it will drop what was not read: smoltcp does at the end of TIME-WAIT.
    fn forgets(&mut self) -> bool {
        match self {
            End::Stack(..) => false,
            End::Smoltcp(client, handle) => client.socket(*handle).state() == State::TimeWait,
        }
    }

    /// Errors: a rule that holds at every moment is broken.
    fn check(&mut self) -> Result<(), String> {
        let End::Stack(bench, _) = self else {
            return Ok(());
        };
        if bench.stack.flows() > 0 && bench.stack.poll_timeout().is_none() {
            return Err("a live flow has no timer".into());
        }
        match bench.counter("tcp_without_timer") {
            0 => Ok(()),
            _ => Err("a flow with bytes to send had no timer".into()),
        }
    }
}

/// A segment of a packet, for a trace.
fn summary(packet: &[u8]) -> String {
    let protocol = if packet[0] >> 4 == 4 {
        packet[9]
    } else {
        packet[6]
    };
    if protocol != 6 {
        return format!("protocol {protocol}, {} bytes", packet.len());
    }
    let segment = packets::read_tcp(packet);
    let flag = |set: bool, name| if set { name } else { "" };
    let flags = [
        flag(segment.syn, "SYN "),
        flag(segment.fin, "FIN "),
        flag(segment.reset, "RST "),
    ];
    format!(
        "{}{} + {} ack {:?} win {} sack {:?}",
        flags.concat(),
        segment.sequence,
        segment.payload.len(),
        segment.acknowledges,
        segment.window,
        segment.blocks
    )
}

/// A packet: its arrival, its number, and the end that it goes to.
type OnItsWay = (Duration, u64, usize, Vec<u8>);

/// Both ends, and the packets between them.
struct Table<'a> {
    conversation: &'a Conversation,
    ends: [End; 2],
    ways: [Way; 2],
    packets: BinaryHeap<Reverse<OnItsWay>>,
    count: u64,
    now: Duration,
    /// The next write of each end, and the bytes of it that were written.
    next: [usize; 2],
    within: [usize; 2],
    written: [usize; 2],
    /// The bytes that each end has read.
    read: [usize; 2],
    read_at: [Duration; 2],
    closed: [bool; 2],
    reset: Option<Duration>,
    last: Duration,
}

impl<'a> Table<'a> {
    fn new(conversation: &'a Conversation) -> Table<'a> {
        let config = || Config {
            mtu: conversation.mtu,
            ..Config::default()
        };
        let seed = conversation.seed;
        let address: SocketAddr = match conversation.is_ipv6 {
            true => "[fd00::2]:5000".parse().expect("a constant"),
            false => "10.0.0.2:5000".parse().expect("a constant"),
        };
        let client = || {
            let buffer = conversation.buffer;
            Box::new(Client::with_buffer(conversation.mtu, seed, buffer))
        };
        let mut bench = Box::new(Bench::new(config()));
        let mut other = Box::new(Bench::new(config()));
        let rooms = conversation.plans.each_ref().map(|plan| plan.room);
        bench.app.room = Some(rooms[0]);
        other.app.room = Some(rooms[1]);
        let ends = match conversation.other {
            Other::Dials => {
                let mut client = client();
                let to = match conversation.is_ipv6 {
                    true => "[2001:db8::1]:80".parse().expect("a constant"),
                    false => "93.184.216.34:80".parse().expect("a constant"),
                };
                let handle = client.connect(to);
                [End::Stack(bench, None), End::Smoltcp(client, handle)]
            }
            Other::Accepts => {
                let mut client = client();
                let handle = client.listen(address);
                let stream = bench.dial(1, address).expect("a free port");
                [
                    End::Stack(bench, Some(stream)),
                    End::Smoltcp(client, handle),
                ]
            }
            Other::Stack => {
                let stream = bench.dial(1, address).expect("a free port");
                [End::Stack(bench, Some(stream)), End::Stack(other, None)]
            }
        };
        let [there, back] = conversation.paths.clone();
        Table {
            conversation,
            ends,
            ways: [Way::new(there, seed ^ 1), Way::new(back, seed ^ 2)],
            packets: BinaryHeap::new(),
            count: 0,
            now: Duration::ZERO,
            next: [0; 2],
            within: [0; 2],
            written: [0; 2],
            read: [0; 2],
            read_at: [Duration::ZERO; 2],
            closed: [false; 2],
            reset: None,
            last: Duration::ZERO,
        }
    }

    fn instant(&self) -> Instant {
        Instant::default() + self.now
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..EVENTS {
            for side in 0..2 {
                self.write(side);
                self.read(side)?;
                self.send(side);
                self.ends[side].check()?;
            }
            if self.is_over()? {
                return self.settle();
            }
            let Some(next) = self.next_event() else {
                return Err(format!("nothing more happens; {}", self.progress()));
            };
            self.go_to(next);
        }
        Err("too many events".into())
    }

    fn progress(&self) -> String {
        format!(
            "written {:?}, read {:?}, closed {:?}",
            self.written, self.read, self.closed
        )
    }

    fn go_to(&mut self, next: Duration) {
        self.now = next.max(self.now);
        let now = self.instant();
        for end in &mut self.ends {
            end.set_now(now);
        }
        while self
            .packets
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= self.now)
        {
            if let Some(Reverse((_, _, to, packet))) = self.packets.pop() {
                self.ends[to].receive(packet);
            }
        }
    }

    fn next_event(&mut self) -> Option<Duration> {
        let now = self.instant();
        let packet = self.packets.peek().map(|Reverse((at, ..))| *at);
        let mut events = vec![packet];
        for side in 0..2 {
            let at = self.ends[side].next(now);
            events.push(at.map(|at| Duration::from_nanos(at.0)));
            let plan = &self.conversation.plans[side];
            if self.reset.is_none() {
                events.push(self.next_action(side));
                events.push(plan.aborts.filter(|at| *at > self.now));
            }
            if self.waiting(side) > 0 {
                events.push(Some(self.next_read(side)));
            }
        }
        events.into_iter().flatten().min()
    }

    /// The time of the next write or of the end.
    fn next_action(&self, side: usize) -> Option<Duration> {
        let plan = &self.conversation.plans[side];
        match plan.writes.get(self.next[side]) {
            Some((at, _)) => Some(*at).filter(|at| *at > self.now),
            None if self.closed[side] => None,
            None => Some(self.end_of(side)).filter(|at| *at > self.now),
        }
    }

    fn end_of(&self, side: usize) -> Duration {
        let plan = &self.conversation.plans[side];
        let last = plan.writes.last().map_or(Duration::ZERO, |(at, _)| *at);
        last + plan.lingers
    }

    fn waiting(&mut self, side: usize) -> usize {
        match &mut self.ends[side] {
            End::Stack(_, Some(stream)) => stream.waiting(),
            End::Stack(..) => 0,
            End::Smoltcp(client, handle) => client.socket(*handle).recv_queue(),
        }
    }

    /// The time of the next read: no reader reads during its pause.
    fn next_read(&self, side: usize) -> Duration {
        let plan = &self.conversation.plans[side];
        let due = self.read_at[side].max(self.now);
        match plan.pause {
            Some((from, to)) if from <= due && due < to => to,
            _ => due,
        }
    }

    fn write(&mut self, side: usize) {
        let plan = &self.conversation.plans[side];
        let aborts = plan.aborts.is_some_and(|at| at <= self.now);
        if aborts && self.reset.is_none() && !self.closed[side] && self.ends[side].is_open() {
            self.ends[side].abort();
            self.reset = Some(self.now);
        }
        if self.reset.is_some() || self.closed[side] || !self.ends[side].is_open() {
            return;
        }
        while let Some((at, length)) = plan.writes.get(self.next[side])
            && *at <= self.now
        {
            let left = (length - self.within[side]).min(CHUNK);
            let from = self.written[side];
            let bytes: Vec<u8> = (from..from + left).map(|at| pattern(side, at)).collect();
            let taken = self.ends[side].write(&bytes);
            self.written[side] += taken;
            self.within[side] += taken;
            self.last = self.last.max(self.now);
            if taken < left {
                return;
            }
            if self.within[side] == *length {
                self.next[side] += 1;
                self.within[side] = 0;
            }
        }
        if self.next[side] == plan.writes.len() && self.end_of(side) <= self.now {
            self.ends[side].close();
            self.closed[side] = true;
            self.last = self.last.max(self.now);
        }
    }

    fn read(&mut self, side: usize) -> Result<(), String> {
        let pauses = self.next_read(side) > self.now && !self.ends[side].forgets();
        if self.waiting(side) == 0 || pauses {
            return Ok(());
        }
        let other = 1 - side;
        let bytes = self.ends[side].read();
        for (offset, byte) in (self.read[side]..).zip(&bytes) {
            if *byte != pattern(other, offset) || offset >= self.written[other] {
                return Err(format!("end {side} read a wrong byte at {offset}"));
            }
        }
        self.read[side] += bytes.len();
        self.read_at[side] = self.now + self.conversation.plans[side].reads_every;
        Ok(())
    }

    fn send(&mut self, side: usize) {
        let now = self.instant();
        for packet in self.ends[side].poll(now) {
            if self.conversation.traces {
                println!("{:>14?} {side} {}", self.now, summary(&packet));
            }
            for (at, packet) in self.ways[side].carry(self.now, &packet) {
                self.count += 1;
                let arrives = (at, self.count, 1 - side, packet);
                self.packets.push(Reverse(arrives));
            }
        }
    }

    /// True if both ends are done. Errors: they should be, or something is missing.
    fn is_over(&mut self) -> Result<bool, String> {
        let resets: Vec<String> = self.ends.iter_mut().filter_map(End::reset).collect();
        if self.reset.is_none() && !resets.is_empty() {
            return Err(format!("reset: {resets:?}; {}", self.progress()));
        }
        if let Some(since) = self.reset {
            if self
                .ends
                .iter_mut()
                .any(|end| matches!(end, End::Stack(_, None)))
            {
                return Ok(true);
            }
            let over = |end: &mut End| end.is_over() || matches!(end, End::Smoltcp(..));
            if self.ends.iter_mut().all(over) {
                return Ok(true);
            }
            return match self.now > since.max(self.last) + RESET_LIMIT {
                true => Err("an end outlives a reset".into()),
                false => Ok(false),
            };
        }
        let unread = self.waiting(0) + self.waiting(1);
        if self.closed == [true; 2] && unread == 0 && self.ends.iter_mut().all(End::is_over) {
            let whole = self.read[0] == self.written[1] && self.read[1] == self.written[0];
            let left = self.ends.iter_mut().map(End::unsent).sum::<usize>();
            return match whole && left == 0 {
                true => Ok(true),
                false => Err(format!("bytes are missing; {}", self.progress())),
            };
        }
        let last = self.conversation.plans.iter().map(|plan| plan.pause);
        let pauses = last.flatten().map(|(_, to)| to).max().unwrap_or_default();
        let planned = self.end_of(0).max(self.end_of(1)).max(pauses);
        match self.now > self.last.max(planned) + LIMIT {
            true => Err(format!("no end; {}", self.progress())),
            false => Ok(false),
        }
    }

    /// Checks that a stack keeps nothing of a connection that is over.
    fn settle(&mut self) -> Result<(), String> {
        for end in &mut self.ends {
            let End::Stack(bench, stream) = end else {
                continue;
            };
            // A stack that waits for the peer's room reads nothing from its application, and so learns of an abort when
            // its own bytes time out.
            bench.wait(RESET_LIMIT);
            let held = bench.stack.held_bytes();
            if stream.is_some() && (held > 0 || !bench.stack.is_idle()) {
                return Err(format!("{held} bytes are left after the end"));
            }
        }
        Ok(())
    }
}
