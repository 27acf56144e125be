//! Measures the cost of bulk transfers at both ends of a tunnel, without sockets and without ciphers:
//! two transports of this crate exchange datagrams in memory, in virtual time. The network stack,
//! WireGuard's messages and the calls of the host remain.
//!
//! `cargo run --release -p watm-wireguard --example flow_cost -- [MB [FLOWS [up|down]]]`
//!
//! Every run does the same, so that `valgrind --tool=callgrind` counts its instructions. It also runs
//! as a module, built for `wasm32-wasip1`, if a runtime gives it imports of `wit/` that it never
//! calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::env;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519::{PublicKey, StaticSecret};
use watm_core::crypto::{self, AeadKey, Algorithm};
use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Direction, ErrorCode,
    FlowInfo, Host, Instant, Level, Listener, StartOptions, Token, Transport, Wakeup,
};
use watm_wireguard::WireGuard;

const SERVER: &str = "192.0.2.1:51820";
const CLIENT: &str = "198.51.100.7:40000";
const START: Instant = Instant(1_000_000_000);

/// The virtual time of a call, and of each datagram in it.
const CALL: Duration = Duration::from_micros(10);
const DATAGRAM: Duration = Duration::from_micros(1);

/// The bytes that the network holds for each end, as a socket does.
const BUFFER: usize = 4 << 20;

/// The bytes that a stream gives at once, as the host's.
const PIECE: usize = 256 << 10;

/// A cipher that changes nothing.
struct Nothing;

impl AeadKey for Nothing {
    fn seal(&self, _: &[u8; 12], _: &[u8], _: &mut [u8]) -> [u8; 16] {
        [0; 16]
    }

    fn open(&self, _: &[u8; 12], _: &[u8], _: &mut [u8]) -> bool {
        true
    }
}

fn nothing(_: Algorithm, _: &[u8]) -> Option<Arc<dyn AeadKey>> {
    Some(Arc::new(Nothing))
}

/// The calls of the host's functions by one end.
#[derive(Default)]
struct Calls {
    receives: Cell<u64>,
    sends: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// The datagrams on their way to one end.
#[derive(Default)]
struct Queue {
    entries: VecDeque<(Datagram, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
    arrived: bool,
}

struct Socket {
    address: SocketAddr,
    from: Rc<RefCell<Queue>>,
    to: Rc<RefCell<Queue>>,
    calls: Rc<Calls>,
    moved: Rc<Cell<u64>>,
}

impl DatagramSocket for Socket {
    fn receive(&mut self, most: u32, most_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        count(&self.calls.receives);
        let mut queue = self.from.borrow_mut();
        let mut batch = DatagramBatch::default();
        while batch.datagrams.len() < most as usize
            && let Some((_, bytes)) = queue.entries.front()
            && batch.payload.len() + bytes.len() <= most_bytes as usize
        {
            let (entry, bytes) = queue.entries.pop_front().expect("looked at");
            queue.bytes -= bytes.len();
            self.moved.set(self.moved.get() + segments(&entry));
            batch.payload.extend_from_slice(&bytes);
            batch.datagrams.push(entry);
        }
        Ok(batch)
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        count(&self.calls.sends);
        let mut queue = self.to.borrow_mut();
        let mut rest = &batch.payload[..];
        for entry in &batch.datagrams {
            let (bytes, tail) = rest.split_at(entry.len as usize);
            rest = tail;
            self.moved.set(self.moved.get() + segments(entry));
            if queue.bytes + bytes.len() > BUFFER {
                queue.dropped += segments(entry);
                continue;
            }
            queue.bytes += bytes.len();
            queue.arrived = true;
            let entry = Datagram {
                remote: self.address,
                local: None,
                ..*entry
            };
            queue.entries.push_back((entry, bytes.to_vec()));
        }
        Ok(batch.datagrams.len() as u32)
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }
}

fn segments(entry: &Datagram) -> u64 {
    let size = entry.segment_size.map_or(entry.len, u32::from).max(1);
    u64::from(entry.len.div_ceil(size))
}

/// A stream that gives or takes bytes as fast as it can.
struct Bulk {
    calls: Rc<Calls>,
    /// The bytes to give.
    left: usize,
    taken: Rc<Cell<usize>>,
}

impl ByteStream for Bulk {
    fn read(&mut self, most: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        count(&self.calls.reads);
        let size = self.left.min(most as usize).min(PIECE);
        self.left -= size;
        Ok(Some(vec![7; size]))
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        count(&self.calls.writes);
        self.taken.set(self.taken.get() + data.len());
        Ok(data.len() as u32)
    }

    fn shutdown(&mut self, _: Direction) -> Result<(), ErrorCode> {
        Ok(())
    }

    fn reset(&mut self, reason: ErrorCode) {
        panic!("the flow was reset: {reason}");
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        None
    }
}

/// One end: its host, and what it did.
struct End {
    socket: Option<Box<dyn DatagramSocket>>,
    listen: Token,
    /// The tokens of new streams.
    ready: Vec<Token>,
    from: Rc<RefCell<Queue>>,
    calls: Rc<Calls>,
    moved: Rc<Cell<u64>>,
    now: Instant,
    /// The bytes that each flow gives to the other end.
    gives: usize,
    taken: Rc<Cell<usize>>,
    wake: Option<Instant>,
    processed: u64,
}

impl Host for End {
    fn datagram_socket(
        &mut self,
        _: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        self.listen = token;
        self.socket.take().ok_or(ErrorCode::InvalidState)
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(
        &mut self,
        _: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        self.ready.push(token);
        Ok(self.stream())
    }

    fn open_datagrams(
        &mut self,
        _: &FlowInfo,
        _: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn log(&mut self, level: Level, _: &str, text: &str) {
        if level >= Level::Warn {
            eprintln!("{text}");
        }
    }

    fn log_enabled(&self, level: Level) -> bool {
        level >= Level::Info
    }

    fn now(&self) -> Instant {
        self.now
    }
}

impl End {
    fn new(address: &str, queues: [&Rc<RefCell<Queue>>; 2], gives: usize) -> End {
        let [from, to] = queues.map(Rc::clone);
        let (calls, moved) = (Rc::new(Calls::default()), Rc::new(Cell::new(0)));
        let socket = Socket {
            address: address.parse().expect("an address"),
            from: Rc::clone(&from),
            to,
            calls: Rc::clone(&calls),
            moved: Rc::clone(&moved),
        };
        End {
            socket: Some(Box::new(socket)),
            listen: 0,
            ready: Vec::new(),
            from,
            calls,
            moved,
            now: START,
            gives,
            taken: Rc::default(),
            wake: Some(START),
            processed: 0,
        }
    }

    fn stream(&self) -> Box<dyn ByteStream> {
        Box::new(Bulk {
            calls: Rc::clone(&self.calls),
            left: self.gives,
            taken: Rc::clone(&self.taken),
        })
    }

    fn start(&mut self, config: &str) -> WireGuard {
        let options = StartOptions {
            config: config.as_bytes().to_vec(),
            log_level: Level::Info,
            generation: 0,
            predecessor: None,
        };
        WireGuard::start(options, self).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Does the due work. Returns the time that it takes, if there was any.
    fn step(&mut self, transport: &mut WireGuard) -> Option<Duration> {
        let arrived = std::mem::take(&mut self.from.borrow_mut().arrived);
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(arrived.then_some(self.listen));
        if ready.is_empty() && self.wake.is_none_or(|wake| wake > self.now) {
            return None;
        }
        let wakeup = transport.process(&ready, self);
        self.processed += 1;
        self.wake = match wakeup {
            Wakeup::Again => Some(self.now),
            Wakeup::At(at) => Some(at),
            Wakeup::OnReady | Wakeup::Finished => None,
        };
        let moved = self.moved.take();
        Some(CALL + DATAGRAM * u32::try_from(moved).expect("few datagrams"))
    }

    fn report(&self, name: &str, transport: &WireGuard) {
        let counters = transport.status(self.now).counters;
        let counter = |name: &str| {
            counters
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(0, |(_, n)| *n)
        };
        println!(
            "{name:>8}: {:7} calls, {:7} receives, {:7} sends, {:7} reads, {:7} writes, {:7} datagrams in, {:7} out, {} dropped",
            self.processed,
            self.calls.receives.get(),
            self.calls.sends.get(),
            self.calls.reads.get(),
            self.calls.writes.get(),
            counter("wireguard.datagrams_received"),
            counter("wireguard.datagrams_sent"),
            self.from.borrow().dropped,
        );
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (megabytes, flows) = (number(0, 200), number(1, 1));
    let up = arguments.get(2).is_some_and(|way| way == "up");
    crypto::set_provider(Some(nothing));
    let total = megabytes * 1_000_000;
    let each = total / flows;
    let queues = [Rc::default(), Rc::default()];
    let mut server = End::new(SERVER, [&queues[0], &queues[1]], if up { 0 } else { each });
    let mut client = End::new(CLIENT, [&queues[1], &queues[0]], if up { each } else { 0 });
    let keys = [1, 2].map(|number| StaticSecret::from([number; 32]));
    let text = |key: &StaticSecret| STANDARD.encode(key.as_bytes());
    let public = |key: &StaticSecret| STANDARD.encode(PublicKey::from(key).as_bytes());
    let mut serving = server.start(&format!(
        "[Interface]\nPrivateKey = {}\n[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.0.1/32\n",
        text(&keys[0]),
        public(&keys[1])
    ));
    let mut calling = client.start(&format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {SERVER}\n",
        text(&keys[1]),
        public(&keys[0])
    ));
    for _ in 0..flows {
        let stream = client.stream();
        let to = "10.9.8.7:80".parse().expect("a destination");
        calling
            .dial(Some(&to), stream, &mut client)
            .expect("dialled");
    }
    client.wake = Some(START);
    let received = Rc::clone(if up { &server.taken } else { &client.taken });
    while received.get() < each * flows {
        let steps = [server.step(&mut serving), client.step(&mut calling)];
        let took = steps.into_iter().flatten().max();
        let now = match took {
            Some(took) => server.now + took,
            None => {
                let wake = [server.wake, client.wake].into_iter().flatten().min();
                wake.expect("an end that goes on by itself").max(server.now)
            }
        };
        (server.now, client.now) = (now, now);
    }
    server.report("server", &serving);
    client.report("client", &calling);
    let took = server.now - START;
    println!(
        "   {flows} flows, {:.0} MB/s of virtual time",
        total as f64 / 1e6 / took.as_secs_f64()
    );
}
