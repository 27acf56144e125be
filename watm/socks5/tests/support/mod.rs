//! A host whose network and application are the test.

#![allow(dead_code, reason = "each test uses a part")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Destination, Direction, Ecn,
    ErrorCode, FlowInfo, Host, Instant, Level, Listener, Lookup, StartOptions, Token, Transport,
    Wakeup,
};
use watm_socks5::Socks5;

#[path = "../../../netstack/tests/support/application.rs"]
mod application;

use application::Application;
pub use application::{DatagramEnd, StreamEnd};

/// The address of the listener and of the socket.
pub const LOCAL: &str = "192.0.2.1:1080";

/// The address of clients, and of the other end of dialled connections.
pub const REMOTE: &str = "198.51.100.7:50000";

/// The transport and its surroundings.
pub struct World {
    pub transport: Socks5,
    pub host: SimHost,
}

pub struct SimHost {
    now: Instant,
    pub application: Application,
    network: Rc<RefCell<Network>>,
    socket: Option<Rc<RefCell<Socket>>>,
    /// The destinations of connections, in order.
    pub connected: Vec<Destination>,
    /// The names looked up, and the answer to the last lookup.
    pub lookups: Vec<String>,
    answer: Rc<RefCell<Answer>>,
    pub logs: Vec<(Level, String)>,
}

#[derive(Default)]
struct Network {
    streams: Application,
    listener: Option<Token>,
    armed: bool,
    waiting: VecDeque<SocketAddr>,
}

#[derive(Default)]
struct Socket {
    token: Token,
    incoming: VecDeque<(SocketAddr, Vec<u8>)>,
    outgoing: Vec<(SocketAddr, Vec<u8>)>,
}

#[derive(Default)]
struct Answer {
    token: Token,
    found: Option<Result<SocketAddr, ErrorCode>>,
}

impl World {
    /// With a datagram socket.
    pub fn new(config: &str) -> World {
        World::start(config, true, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Without a datagram socket.
    pub fn of_streams(config: &str) -> World {
        World::start(config, false, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The generation after this one, which serves from now on.
    pub fn replaced(&mut self, config: &str) -> World {
        let snapshot = self.transport.snapshot(self.host.now);
        let mut next = World::start(config, true, Some(snapshot)).unwrap();
        self.transport.serving(1, &mut self.host);
        next.transport.serving(1, &mut next.host);
        next
    }

    fn start(config: &str, datagrams: bool, predecessor: Option<Vec<u8>>) -> Result<World, String> {
        let network = Network {
            armed: true,
            ..Network::default()
        };
        let mut host = SimHost {
            now: Instant(1_000_000_000),
            application: Application::default(),
            network: Rc::new(RefCell::new(network)),
            socket: datagrams.then(Rc::default),
            connected: Vec::new(),
            lookups: Vec::new(),
            answer: Rc::default(),
            logs: Vec::new(),
        };
        let options = StartOptions {
            config: config.into(),
            log_level: Level::Trace,
            generation: predecessor.is_some().into(),
            predecessor,
        };
        let transport = Socks5::start(options, &mut host).map_err(|error| error.to_string())?;
        let mut world = World { transport, host };
        world.run();
        Ok(world)
    }

    /// Accepts a connection from [`REMOTE`].
    pub fn accept(&mut self) -> StreamEnd {
        self.accept_from(REMOTE)
    }

    /// Accepts a connection from this address.
    pub fn accept_from(&mut self, remote: &str) -> StreamEnd {
        self.host
            .network
            .borrow_mut()
            .waiting
            .push_back(remote.parse().unwrap());
        let token = self
            .host
            .network
            .borrow()
            .listener
            .expect("there is a listener");
        self.process(&[token]);
        self.connections().pop().unwrap()
    }

    /// Sends bytes on a connection, and runs.
    pub fn say(&mut self, connection: &StreamEnd, bytes: &[u8]) {
        connection.write(bytes);
        self.run();
    }

    /// Dials a stream for the application. Returns its end, and the connection's.
    pub fn dial(&mut self, to: &str) -> Result<(StreamEnd, StreamEnd), ErrorCode> {
        let (end, stream) = self.host.application.new_stream();
        let to: Destination = to.parse().unwrap();
        let token = self.transport.dial(Some(&to), stream, &mut self.host)?;
        end.set_token(token);
        self.run();
        Ok((end, self.connections().pop().unwrap()))
    }

    /// Dials a flow of datagrams. Returns its end, and that of the association's connection.
    pub fn dial_datagrams(&mut self, to: &str) -> Result<(DatagramEnd, StreamEnd), ErrorCode> {
        let (end, flow) = self.host.application.new_datagrams();
        let to: Destination = to.parse().unwrap();
        let token = self
            .transport
            .dial_datagrams(Some(&to), flow, &mut self.host)?;
        end.set_token(token);
        self.run();
        Ok((end, self.connections().pop().unwrap()))
    }

    /// The network's ends of all connections, in the order of their arrival.
    pub fn connections(&self) -> Vec<StreamEnd> {
        self.host.network.borrow().streams.streams().to_vec()
    }

    /// Delivers a datagram, and runs.
    pub fn arrive(&mut self, from: &str, datagram: &[u8]) {
        let socket = self.host.socket.clone().expect("there is a socket");
        let arrived = (from.parse().unwrap(), datagram.to_vec());
        socket.borrow_mut().incoming.push_back(arrived);
        let token = socket.borrow().token;
        self.process(&[token]);
    }

    /// Takes the datagrams sent, with their destinations.
    pub fn sent(&mut self) -> Vec<(String, Vec<u8>)> {
        let socket = self.host.socket.as_ref().expect("there is a socket");
        let sent = std::mem::take(&mut socket.borrow_mut().outgoing);
        sent.into_iter()
            .map(|(to, bytes)| (to.to_string(), bytes))
            .collect()
    }

    /// Answers the last lookup.
    pub fn answer_lookup(&mut self, found: Result<&str, ErrorCode>) {
        let token = {
            let mut answer = self.host.answer.borrow_mut();
            answer.found = Some(found.map(|address| address.parse().unwrap()));
            answer.token
        };
        self.process(&[token]);
    }

    pub fn advance(&mut self, time: Duration) {
        self.host.now = self.host.now + time;
        self.run();
    }

    pub fn run(&mut self) -> Wakeup {
        self.process(&[])
    }

    fn process(&mut self, ready: &[Token]) -> Wakeup {
        let mut wakeup = self.transport.process(ready, &mut self.host);
        for _ in 0..10_000 {
            let ready = self.host.take_ready();
            let due = match wakeup {
                Wakeup::Again => true,
                Wakeup::At(at) => at <= self.host.now,
                Wakeup::OnReady | Wakeup::Finished => false,
            };
            if ready.is_empty() && !due {
                return wakeup;
            }
            wakeup = self.transport.process(&ready, &mut self.host);
        }
        panic!("it does not come to rest");
    }

    pub fn counter(&self, name: &str) -> u64 {
        let status = self.transport.status(self.host.now);
        let found = status.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// The log, which must not have these words.
    pub fn log_without(&self, secrets: &[&str]) -> String {
        let lines: Vec<&str> = self
            .host
            .logs
            .iter()
            .map(|(_, line)| line.as_str())
            .collect();
        let log = lines.join("\n");
        for secret in secrets {
            assert!(!log.contains(secret), "{log}");
        }
        log
    }
}

impl SimHost {
    fn take_ready(&mut self) -> Vec<Token> {
        let mut ready = self.application.take_ready();
        ready.extend(self.network.borrow_mut().streams.take_ready());
        ready
    }
}

impl Host for SimHost {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        assert_eq!(label, "listen");
        let socket = self.socket.clone().ok_or(ErrorCode::AccessDenied)?;
        socket.borrow_mut().token = token;
        Ok(Box::new(SocketEnd(socket)))
    }

    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        assert_eq!(label, "listen");
        self.network.borrow_mut().listener = Some(token);
        Ok(Box::new(ListenerEnd(Rc::clone(&self.network))))
    }

    fn connect(
        &mut self,
        destination: &Destination,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        self.connected.push(destination.clone());
        let remote = REMOTE.parse().unwrap();
        self.network.borrow_mut().connection(remote, token)
    }

    fn lookup(
        &mut self,
        name: &str,
        port: u16,
        token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        self.lookups.push(format!("{name}:{port}"));
        *self.answer.borrow_mut() = Answer { token, found: None };
        Ok(Box::new(LookupEnd(Rc::clone(&self.answer))))
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        self.application.open_stream(info, token)
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        self.application.open_datagrams(info, token)
    }

    fn log(&mut self, level: Level, _: &str, message: &str) {
        self.logs.push((level, message.to_owned()));
    }

    fn log_enabled(&self, _: Level) -> bool {
        true
    }

    fn now(&self) -> Instant {
        self.now
    }
}

impl Network {
    fn connection(
        &mut self,
        remote: SocketAddr,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let info = FlowInfo {
            source: remote,
            destination: Destination::Address(LOCAL.parse().unwrap()),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        let stream = self.streams.open_stream(&info, token)?;
        Ok(Box::new(Connection { stream, remote }))
    }
}

struct ListenerEnd(Rc<RefCell<Network>>);

impl Listener for ListenerEnd {
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode> {
        let mut network = self.0.borrow_mut();
        let Some(remote) = network.waiting.pop_front() else {
            network.armed = true;
            return Ok(None);
        };
        network.connection(remote, token).map(Some)
    }

    fn local_address(&self) -> SocketAddr {
        LOCAL.parse().unwrap()
    }
}

/// A stream that knows its remote address.
struct Connection {
    stream: Box<dyn ByteStream>,
    remote: SocketAddr,
}

impl ByteStream for Connection {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        self.stream.read(max_bytes)
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        self.stream.write(data)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        self.stream.shutdown(direction)
    }

    fn reset(&mut self, reason: ErrorCode) {
        self.stream.reset(reason);
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        Some(self.remote)
    }
}

struct SocketEnd(Rc<RefCell<Socket>>);

impl DatagramSocket for SocketEnd {
    fn receive(&mut self, max_datagrams: u32, _: u32) -> Result<DatagramBatch, ErrorCode> {
        let mut socket = self.0.borrow_mut();
        let count = socket.incoming.len().min(max_datagrams as usize);
        let mut batch = DatagramBatch::default();
        for (remote, bytes) in socket.incoming.drain(..count) {
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
        let mut socket = self.0.borrow_mut();
        for (info, bytes) in batch.iter() {
            socket.outgoing.push((info.remote, bytes.to_vec()));
        }
        Ok(batch.datagrams.len() as u32)
    }

    fn local_address(&self) -> SocketAddr {
        LOCAL.parse().unwrap()
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
