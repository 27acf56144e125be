//! The host of a stream transport.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, DatagramFlow, DatagramSocket, Destination, Direction, ErrorCode, FlowInfo, Host,
    Instant, Level, Listener, StartOptions, Token, Transport, Wakeup,
};

#[allow(dead_code)]
#[path = "../../../netstack/tests/support/application.rs"]
mod application;

use application::Application;
pub use application::StreamEnd;

pub const LOCAL: &str = "192.0.2.1:443";
pub const REMOTE: &str = "198.51.100.7:50000";

/// A host whose network and application are the test. The application of the network stack's tests
/// reports readiness strictly; connections of the network are streams of a second such application.
pub struct SimHost {
    now: Instant,
    pub application: Application,
    network: Rc<RefCell<Network>>,
    /// True if there is a listener.
    pub listens: bool,
    /// The destinations of connections, in order; connecting is refused if this is `None`.
    pub connected: Option<Vec<Destination>>,
    pub logs: Vec<String>,
}

struct Network {
    streams: Application,
    listener: Option<Token>,
    armed: bool,
    ready: bool,
    /// The connections that wait at the listener, with their data.
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The error of the next accept.
    error: Option<ErrorCode>,
    accepts: usize,
}

impl SimHost {
    pub fn new() -> SimHost {
        SimHost {
            now: Instant(1_000_000_000),
            application: Application::default(),
            network: Rc::new(RefCell::new(Network {
                streams: Application::default(),
                listener: None,
                armed: true,
                ready: false,
                waiting: VecDeque::new(),
                error: None,
                accepts: 0,
            })),
            listens: true,
            connected: Some(Vec::new()),
            logs: Vec::new(),
        }
    }

    /// Opens a connection to the transport that sends `data`.
    pub fn arrive(&mut self, data: &[u8]) {
        self.arrive_from(REMOTE, data);
    }

    /// Like [`arrive`](SimHost::arrive), from this address.
    pub fn arrive_from(&mut self, remote: &str, data: &[u8]) {
        let mut network = self.network.borrow_mut();
        let arrived = (remote.parse().unwrap(), data.to_vec());
        network.waiting.push_back(arrived);
        if std::mem::take(&mut network.armed) {
            network.ready = true;
        }
    }

    /// The number of connections that wait at the listener.
    pub fn waiting(&self) -> usize {
        self.network.borrow().waiting.len()
    }

    pub fn fail_next_accept(&mut self, error: ErrorCode) {
        self.network.borrow_mut().error = Some(error);
    }

    pub fn accepts(&self) -> usize {
        self.network.borrow().accepts
    }

    /// The network's ends of all connections, in the order of their arrival.
    pub fn connections(&self) -> Vec<StreamEnd> {
        self.network.borrow().streams.streams().to_vec()
    }

    pub fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub fn take_ready(&mut self) -> Vec<Token> {
        let mut ready = self.application.take_ready();
        let mut network = self.network.borrow_mut();
        ready.extend(network.streams.take_ready());
        if std::mem::take(&mut network.ready) {
            ready.extend(network.listener);
        }
        ready
    }

    pub fn start<T: Transport>(&mut self, config: &str) -> T {
        let options = StartOptions {
            config: config.into(),
            log_level: Level::Trace,
            generation: 0,
            predecessor: None,
        };
        T::start(options, self).unwrap()
    }

    /// Calls the transport while it has something to do now.
    pub fn run<T: Transport>(&mut self, transport: &mut T) -> Wakeup {
        let mut wakeup = Wakeup::Again;
        for _ in 0..10_000 {
            let ready = self.take_ready();
            if ready.is_empty() && wakeup != Wakeup::Again {
                return wakeup;
            }
            wakeup = transport.process(&ready, self);
            if let Wakeup::At(due) = wakeup
                && due <= self.now
            {
                wakeup = Wakeup::Again;
            }
        }
        panic!("it does not come to rest");
    }
}

impl Host for SimHost {
    fn datagram_socket(&mut self, _: &str, _: Token) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        if !self.listens || label != "listen" {
            return Err(ErrorCode::AccessDenied);
        }
        self.network.borrow_mut().listener = Some(token);
        Ok(Box::new(ListenerEnd(Rc::clone(&self.network))))
    }

    fn connect(
        &mut self,
        destination: &Destination,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let connected = self.connected.as_mut().ok_or(ErrorCode::AccessDenied)?;
        connected.push(destination.clone());
        let remote = REMOTE.parse().unwrap();
        self.network.borrow_mut().connection(remote, token)
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
        _: &FlowInfo,
        _: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    fn log(&mut self, level: Level, _: &str, message: &str) {
        assert!(level <= Level::Debug, "strangers do not fill the log");
        self.logs.push(message.to_owned());
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
        network.accepts += 1;
        if let Some(error) = network.error.take() {
            return Err(error);
        }
        let Some((remote, data)) = network.waiting.pop_front() else {
            network.armed = true;
            return Ok(None);
        };
        let connection = network.connection(remote, token)?;
        network.streams.streams().last().unwrap().write(&data);
        Ok(Some(connection))
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
