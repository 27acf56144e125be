//! A host whose network is a queue of datagrams, and whose application is the test.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Datagrams, Destination, Ecn,
    ErrorCode, FlowInfo, Host, Instant, Level, Listener, Lookup, StartOptions, Token, Transport,
    Wakeup,
};
use watm_shadowsocks::{Shadowsocks, set_wall_clock};

use super::NOW;

/// The address of the transport's socket.
pub const LOCAL: &str = "192.0.2.1:8388";

/// The transport and its surroundings.
pub struct World {
    pub transport: Shadowsocks,
    pub host: SimHost,
    generation: u32,
}

pub struct SimHost {
    now: Instant,
    socket: Rc<RefCell<Queues>>,
    pub flows: Vec<Flow>,
    /// True if the application takes flows.
    pub accepts: bool,
    /// The names looked up, and the answer to them.
    pub lookups: Vec<String>,
    answer: Rc<RefCell<Answer>>,
}

#[derive(Default)]
struct Answer {
    token: Token,
    found: Option<Result<SocketAddr, ErrorCode>>,
}

#[derive(Default)]
struct Queues {
    incoming: VecDeque<(SocketAddr, Vec<u8>)>,
    outgoing: Vec<(SocketAddr, Vec<u8>)>,
    /// The datagrams accepted before the network is full.
    room: usize,
    token: Token,
}

/// The application's end of a flow.
#[derive(Clone, Default)]
pub struct Flow {
    pub info: Option<FlowInfo>,
    pub token: Token,
    shared: Rc<RefCell<FlowQueues>>,
}

#[derive(Default)]
struct FlowQueues {
    received: Vec<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    closed: bool,
    dropped: bool,
}

impl World {
    pub fn new(config: &str) -> World {
        World::after(config, 0, None)
    }

    /// A successor of another world's transport, which goes on with its flows.
    pub fn replacing(config: &str, other: &mut World) -> World {
        let snapshot = other.transport.snapshot(other.host.now);
        let generation = other.generation + 1;
        let mut world = World::after(config, generation, Some(snapshot));
        for world in [other, &mut world] {
            world.transport.serving(generation, &mut world.host);
        }
        world
    }

    fn after(config: &str, generation: u32, predecessor: Option<Vec<u8>>) -> World {
        set_wall_clock(Some(NOW));
        let mut host = SimHost {
            now: Instant(1_000_000_000),
            socket: Rc::new(RefCell::new(Queues {
                room: usize::MAX,
                ..Queues::default()
            })),
            flows: Vec::new(),
            accepts: true,
            lookups: Vec::new(),
            answer: Rc::default(),
        };
        let options = StartOptions {
            config: config.into(),
            log_level: Level::Trace,
            generation,
            predecessor,
        };
        let transport =
            Shadowsocks::start(options, &mut host).unwrap_or_else(|error| panic!("{error}"));
        World {
            transport,
            host,
            generation,
        }
    }

    /// Delivers a datagram, and processes its consequences.
    pub fn arrive(&mut self, from: &str, datagram: &[u8]) {
        let from = from.parse().unwrap();
        let arrived = (from, datagram.to_vec());
        self.host.socket.borrow_mut().incoming.push_back(arrived);
        let token = self.host.socket.borrow().token;
        self.run(&[token]);
    }

    /// Sends a datagram of the application in a flow.
    pub fn say(&mut self, flow: &Flow, datagram: &[u8]) {
        flow.shared.borrow_mut().sent.push_back(datagram.to_vec());
        self.run(&[flow.token]);
    }

    /// The datagrams sent since the last call, with their destinations.
    pub fn sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.host.socket.borrow_mut().outgoing)
    }

    /// Dials a flow for the application.
    pub fn dial(&mut self, destination: &str) -> Result<Flow, ErrorCode> {
        let mut flow = Flow::default();
        let destination: Destination = destination.parse().unwrap();
        let application = Box::new(FlowEnd(flow.shared.clone()));
        flow.token =
            self.transport
                .dial_datagrams(Some(&destination), application, &mut self.host)?;
        Ok(flow)
    }

    /// Answers the lookup with an address or an error.
    pub fn answer_lookup(&mut self, found: Result<&str, ErrorCode>) {
        let found = found.map(|address| address.parse().unwrap());
        let token = {
            let mut answer = self.host.answer.borrow_mut();
            answer.found = Some(found);
            answer.token
        };
        self.run(&[token]);
    }

    pub fn advance(&mut self, time: Duration) {
        self.host.now = self.host.now + time;
        self.run(&[]);
    }

    /// Sets the number of datagrams that the network accepts.
    pub fn set_room(&mut self, room: usize) {
        let token = {
            let mut socket = self.host.socket.borrow_mut();
            socket.room = room;
            socket.token
        };
        self.run(&[token]);
    }

    pub fn run(&mut self, ready: &[Token]) -> Wakeup {
        let mut wakeup = self.transport.process(ready, &mut self.host);
        for _ in 0..10_000 {
            match wakeup {
                Wakeup::Again => {}
                Wakeup::At(at) if at <= self.host.now => {}
                other => return other,
            }
            wakeup = self.transport.process(&[], &mut self.host);
        }
        panic!("it does not come to rest");
    }

    pub fn counter(&self, name: &str) -> u64 {
        let status = self.transport.status(self.host.now);
        let found = status.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

impl Flow {
    /// The datagrams that the application received since the last call.
    pub fn received(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.shared.borrow_mut().received)
    }

    /// Closes the flow for the application.
    pub fn close(&self) {
        self.shared.borrow_mut().closed = true;
    }

    /// Returns true if the transport has ended it.
    pub fn is_ended(&self) -> bool {
        self.shared.borrow().dropped
    }
}

impl Host for SimHost {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        assert_eq!(label, "listen");
        self.socket.borrow_mut().token = token;
        Ok(Box::new(Socket(self.socket.clone())))
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(&mut self, _: &FlowInfo, _: Token) -> Result<Box<dyn ByteStream>, ErrorCode> {
        unreachable!("there is no listener")
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        if !self.accepts {
            return Err(ErrorCode::AccessDenied);
        }
        let flow = Flow {
            info: Some(info.clone()),
            token,
            shared: Rc::default(),
        };
        self.flows.push(flow.clone());
        Ok(Box::new(FlowEnd(flow.shared)))
    }

    fn lookup(
        &mut self,
        name: &str,
        port: u16,
        token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        self.lookups.push(format!("{name}:{port}"));
        *self.answer.borrow_mut() = Answer { token, found: None };
        Ok(Box::new(LookupEnd(self.answer.clone())))
    }

    fn log(&mut self, level: Level, _: &str, message: &str) {
        assert!(
            level <= Level::Debug || message.starts_with("server: "),
            "strangers do not fill the log: {message}"
        );
    }

    fn log_enabled(&self, _: Level) -> bool {
        true
    }

    fn now(&self) -> Instant {
        self.now
    }
}

struct Socket(Rc<RefCell<Queues>>);

impl DatagramSocket for Socket {
    fn receive(&mut self, max_datagrams: u32, _: u32) -> Result<DatagramBatch, ErrorCode> {
        let mut queues = self.0.borrow_mut();
        let count = queues.incoming.len().min(max_datagrams as usize);
        let mut batch = DatagramBatch::default();
        for (remote, bytes) in queues.incoming.drain(..count) {
            batch.payload.extend_from_slice(&bytes);
            batch.datagrams.push(Datagram {
                len: bytes.len() as u32,
                segment_size: None,
                remote,
                local: None,
                ecn: Ecn::default(),
            });
        }
        Ok(batch)
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        let mut queues = self.0.borrow_mut();
        let count = queues.room.min(batch.datagrams.len());
        for (info, bytes) in batch.iter().take(count) {
            queues.outgoing.push((info.remote, bytes.to_vec()));
        }
        queues.room -= count;
        Ok(count as u32)
    }

    fn local_address(&self) -> SocketAddr {
        LOCAL.parse().unwrap()
    }
}

struct FlowEnd(Rc<RefCell<FlowQueues>>);

impl DatagramFlow for FlowEnd {
    fn receive(&mut self, max: u32, _: u32) -> Result<Option<Datagrams>, ErrorCode> {
        let mut queues = self.0.borrow_mut();
        let count = queues.sent.len().min(max as usize);
        let mut datagrams = Datagrams::default();
        for datagram in queues.sent.drain(..count) {
            datagrams.push(&datagram);
        }
        Ok((!queues.closed || count > 0).then_some(datagrams))
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        let mut queues = self.0.borrow_mut();
        queues.received.extend(datagrams.iter().map(<[u8]>::to_vec));
        Ok(datagrams.lengths.len() as u32)
    }
}

impl Drop for FlowEnd {
    fn drop(&mut self) {
        self.0.borrow_mut().dropped = true;
    }
}

struct LookupEnd(Rc<RefCell<Answer>>);

impl Lookup for LookupEnd {
    fn addresses(&mut self) -> Result<Option<Vec<SocketAddr>>, ErrorCode> {
        match self.0.borrow().found.clone() {
            None => Ok(None),
            Some(found) => found.map(|address| Some(vec![address])),
        }
    }
}
