//! The runner: the stack in virtual time, and the packets that it sent and the script has not
//! expected yet.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{Host, Instant};
use watm_netstack::Config;

use super::connection::Connection;
use super::fields::describe;
use super::receiver::Receiver;
use super::segment::{ACK, FIN, RST, SYN, Segment};
use super::values::Names;
use crate::support::{Bench, origin};

/// The peer that all packets come from.
pub const PEER: u32 = 1;
/// The bytes of an endless application that wait for the stack.
const ENDLESS: usize = 4 << 20;
/// The most steps between two times, and the packets of a trace.
const STEPS: usize = 200_000;
const TRACED: usize = 16;

/// A packet of the stack: its time, the index of its connection, and its content.
pub struct Packet {
    pub at: Instant,
    pub connection: usize,
    pub segment: Segment,
    pub length: usize,
    /// True if routers may fragment it.
    pub divisible: bool,
    /// Its segment before this number was sent already.
    pub before: i64,
}

/// The settings that a script makes before its first packet.
pub struct Setup {
    pub config: Config,
    pub is_ipv6: bool,
    pub their_first: u32,
    /// The distance of the stack's first number from 2^32.
    pub wrap: Option<u32>,
}

pub struct Runner {
    pub setup: Setup,
    pub bench: Bench,
    pub begun: bool,
    pub connections: Vec<Connection>,
    /// The names of the connections, and the index of the current one.
    pub labels: Vec<String>,
    pub current: usize,
    pub sent: VecDeque<Packet>,
    /// The packets to deliver with the next one.
    pub batch: Vec<Vec<u8>>,
    pub names: Names,
    /// The time of the last event.
    pub rtt: Duration,
    pub mark: Instant,
    pub ignores_acks: bool,
    pub receiver: Option<Receiver>,
    pub depth: usize,
    pub line: usize,
    traced: VecDeque<String>,
}

impl Runner {
    pub fn new() -> Runner {
        Runner {
            setup: Setup {
                config: Config::default(),
                is_ipv6: false,
                their_first: 1_000_000,
                wrap: None,
            },
            bench: Bench::new(Config::default()),
            begun: false,
            connections: Vec::new(),
            labels: Vec::new(),
            current: 0,
            sent: VecDeque::new(),
            batch: Vec::new(),
            names: Names::new(),
            rtt: Duration::from_millis(20),
            mark: Instant::default(),
            ignores_acks: false,
            receiver: None,
            depth: 0,
            line: 0,
            traced: VecDeque::new(),
        }
    }

    pub fn trace(&self) -> Vec<String> {
        self.traced.iter().cloned().collect()
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, text: &str) {
        let at = self.now() - Instant::default();
        if self.traced.len() == TRACED {
            self.traced.pop_front();
        }
        self.traced
            .push_back(format!("{:>12.6} {text}", at.as_secs_f64()));
    }

    pub fn now(&self) -> Instant {
        self.bench.app.now()
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connections[self.current]
    }

    pub fn mtu(&self) -> usize {
        self.setup.config.mtu
    }

    /// The addresses of the peer, and of the stack's side of accepted connections.
    pub fn ends(&self, port: u16) -> (SocketAddr, SocketAddr) {
        let (theirs, ours) = match self.setup.is_ipv6 {
            true => ("[fd00::2]:0", "[2001:db8::1]:80"),
            false => ("10.0.0.2:0", "93.184.216.34:80"),
        };
        let parse = |text: &str| text.parse::<SocketAddr>().expect("a constant");
        (SocketAddr::new(parse(theirs).ip(), port), parse(ours))
    }

    /// Makes the stack, once the settings are known.
    pub fn begin(&mut self) -> Result<(), String> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        self.bench = Bench::new(self.setup.config.clone());
        if let Some(distance) = self.setup.wrap {
            let number = self.first_number_at_zero();
            // The clock of initial numbers ticks every 4 us (RFC 9293 section 3.4.1).
            let ticks = 0_u32.wrapping_sub(distance).wrapping_sub(number);
            let at = Duration::from_micros(4 * u64::from(ticks));
            self.bench.app.set_now(Instant::default() + at);
        }
        let (theirs, ours) = self.ends(40000);
        let first = self.setup.their_first;
        self.connections
            .push(Connection::new(theirs, ours, first, 0));
        self.labels.push("1".into());
        self.mark = self.now();
        Ok(())
    }

    /// The stack's first number if the connection is opened at the beginning of time.
    fn first_number_at_zero(&self) -> u32 {
        let mut bench = Bench::new(self.setup.config.clone());
        let (theirs, ours) = self.ends(40000);
        let answers = bench.packet(PEER, &crate::support::packets::syn(theirs, ours, 1));
        Segment::read(&answers[0])
            .expect("a SYN of the stack")
            .2
            .sequence
    }

    /// Takes the packets that the stack has sent, and checks what holds for all.
    pub fn gather(&mut self) -> Result<(), String> {
        for (_, packet) in std::mem::take(&mut self.bench.sent.0) {
            if matches!(packet[if packet[0] >> 4 == 4 { 9 } else { 6 }], 1 | 58) {
                return Err("the stack sent an ICMP message".into());
            }
            let (from, to, segment) = Segment::read(&packet)?;
            let owner = self
                .connections
                .iter()
                .rposition(|one| one.has_ports_of(from, to));
            let Some(index) = owner else {
                return Err(format!("a segment from {from} to {to}, which are unknown"));
            };
            let mtu = self.mtu();
            let one = &mut self.connections[index];
            one.ours = from;
            let before = one.nxt;
            let noted = one.note(&segment, packet.len(), mtu);
            let identification = identification(&packet);
            if identification.is_some_and(|number| !one.identifications.insert(number)) {
                return Err("an identification is repeated".into());
            }
            let text = describe(&segment, one);
            self.note(&format!("> {text}"));
            noted.map_err(|reason| format!("{reason}: {text}"))?;
            let one = &self.connections[index];
            let has_isn = one.our_first.is_some();
            let is_new = has_isn && !segment.has(SYN | FIN | RST) && segment.payload.is_empty();
            if self.ignores_acks && is_new && segment.has(ACK) {
                continue;
            }
            self.sent.push_back(Packet {
                at: self.now(),
                connection: index,
                segment,
                length: packet.len(),
                divisible: identification.is_some(),
                before,
            });
        }
        Ok(())
    }

    /// Lets the stack do what it can at this time.
    pub fn settle(&mut self) -> Result<(), String> {
        for index in 0..self.connections.len() {
            let one = &mut self.connections[index];
            if !one.endless || one.closed {
                continue;
            }
            if let Some(stream) = one.stream(&self.bench.app)
                && stream.unsent() < ENDLESS / 2
                && !stream.gone()
            {
                let from = one.written;
                let bytes: Vec<u8> = (from..from + ENDLESS as i64)
                    .map(super::connection::pattern)
                    .collect();
                stream.write(&bytes);
                one.written += ENDLESS as i64;
            }
        }
        self.bench.rest();
        self.gather()?;
        self.check_timer()
    }

    /// Checks that a connection with unacknowledged bytes has a timer.
    fn check_timer(&self) -> Result<(), String> {
        if self.bench.stack.poll_timeout().is_some() || self.bench.stack.flows() == 0 {
            return Ok(());
        }
        let waits = |one: &&Connection| {
            let stream = one.stream(&self.bench.app);
            one.nxt > one.ack && stream.is_some_and(|end| !end.gone() && end.reset().is_none())
        };
        match self.connections.iter().find(waits) {
            Some(one) => Err(format!(
                "the bytes between {} and {} have no timer",
                one.ack, one.nxt
            )),
            None => Ok(()),
        }
    }

    /// Lets time pass until then; `stops`: or until there is a packet.
    pub fn advance(&mut self, until: Instant, stops: bool) -> Result<(), String> {
        for _ in 0..STEPS {
            self.settle()?;
            if stops && !self.sent.is_empty() {
                return Ok(());
            }
            let now = self.now();
            match self.bench.stack.poll_timeout() {
                Some(at) if at <= until => self.bench.app.set_now(at.max(now)),
                _ => {
                    self.bench.app.set_now(until.max(now));
                    return self.settle();
                }
            }
            self.time_out();
        }
        Err("the stack spins".into())
    }

    pub fn time_out(&mut self) {
        let bench = &mut self.bench;
        bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
    }

    /// Gives packets of the peer to the stack, as one batch.
    pub fn deliver(&mut self, packets: &[Vec<u8>]) -> Result<(), String> {
        for packet in packets {
            let bench = &mut self.bench;
            bench
                .stack
                .handle_packet(&origin(PEER), packet, &mut bench.app, &mut bench.sent);
        }
        self.settle()
    }

    /// Errors: there are packets that the script has not expected.
    pub fn nothing_left(&self) -> Result<(), String> {
        match self.sent.front() {
            Some(packet) => {
                let one = &self.connections[packet.connection];
                Err(format!("unexpected: {}", describe(&packet.segment, one)))
            }
            None => Ok(()),
        }
    }

    /// Checks what holds at the end of every script.
    pub fn end(&mut self) -> Result<(), String> {
        if !self.begun {
            return Err("the script does nothing".into());
        }
        if !self.batch.is_empty() {
            return Err("packets wait for one that follows".into());
        }
        self.settle()?;
        self.nothing_left()?;
        let counters = self.bench.stack.counters();
        match counters
            .into_iter()
            .find(|(name, _)| name.ends_with("tcp_without_timer"))
        {
            Some((_, count)) if count > 0 => Err("a flow was without a timer".into()),
            _ => Ok(()),
        }
    }
}

/// The identification of a packet that routers may fragment.
fn identification(packet: &[u8]) -> Option<u16> {
    let may = packet[0] >> 4 == 4 && packet[6] & 0x40 == 0;
    may.then(|| u16::from_be_bytes([packet[4], packet[5]]))
}
