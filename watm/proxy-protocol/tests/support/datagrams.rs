//! A host with a datagram socket, and an application that takes datagram flows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Datagrams, Ecn, ErrorCode,
    FlowInfo, Host, Instant, Level, Listener, StartOptions, Token, Transport, Wakeup,
};
use watm_proxy_protocol::ProxyServer;

pub const LOCAL: &str = "10.0.0.1:443";

/// A sent datagram: its destination, its local address, and its bytes.
pub type Sent = (SocketAddr, Option<IpAddr>, Vec<u8>);

/// The host. The socket and the flows share its state.
#[derive(Clone, Default)]
pub struct DatagramHost(Rc<RefCell<World>>);

#[derive(Default)]
struct World {
    now: Instant,
    ready: BTreeSet<Token>,
    socket: Option<Token>,
    armed: bool,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    sent: Vec<Sent>,
    /// The datagrams that the network takes before it is full.
    room: Option<usize>,
    flows: BTreeMap<Token, Flow>,
    /// The flows in the order of their opening.
    opened: Vec<Token>,
    refuse: bool,
}

struct Flow {
    info: FlowInfo,
    incoming: Vec<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    armed: bool,
    closed: bool,
    gone: bool,
    most: usize,
}

impl DatagramHost {
    pub fn new() -> DatagramHost {
        let host = DatagramHost::default();
        host.0.borrow_mut().now = Instant(1_000_000_000);
        host.0.borrow_mut().armed = true;
        host
    }

    /// Starts a transport with this configuration.
    pub fn start(&mut self, config: &str) -> ProxyServer {
        self.start_after(config, None)
    }

    pub fn start_after(&mut self, config: &str, predecessor: Option<Vec<u8>>) -> ProxyServer {
        let options = StartOptions {
            config: config.into(),
            log_level: Level::Trace,
            generation: u32::from(predecessor.is_some()),
            predecessor,
        };
        ProxyServer::start(options, self).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn arrive(&self, from: &str, datagram: &[u8]) {
        let world = &mut *self.0.borrow_mut();
        world
            .waiting
            .push_back((from.parse().unwrap(), datagram.to_vec()));
        if std::mem::take(&mut world.armed) {
            world.ready.extend(world.socket);
        }
    }

    pub fn advance(&self, time: Duration) {
        let mut world = self.0.borrow_mut();
        world.now = world.now + time;
    }

    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }

    /// Sets the number of further datagrams that the network takes; `None`: any number.
    pub fn set_room(&self, room: Option<usize>) {
        let world = &mut *self.0.borrow_mut();
        world.room = room;
        world.ready.extend(world.socket);
    }

    pub fn refuse_flows(&self, refuse: bool) {
        self.0.borrow_mut().refuse = refuse;
    }

    /// The open flows, in the order of their opening.
    pub fn flows(&self) -> Vec<Token> {
        let world = self.0.borrow();
        let open = |token: &&Token| !world.flows[token].gone;
        world.opened.iter().filter(open).copied().collect()
    }

    pub fn info(&self, flow: Token) -> FlowInfo {
        self.0.borrow().flows[&flow].info.clone()
    }

    pub fn read(&self, flow: Token) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().flows.get_mut(&flow).unwrap().incoming)
    }

    /// Limits the number of datagrams that the application takes before it is asked again.
    pub fn set_most(&self, flow: Token, most: usize) {
        self.0.borrow_mut().flows.get_mut(&flow).unwrap().most = most;
    }

    pub fn write(&self, flow: Token, datagram: &[u8]) {
        let world = &mut *self.0.borrow_mut();
        let it = world.flows.get_mut(&flow).unwrap();
        it.outgoing.push_back(datagram.to_vec());
        if std::mem::take(&mut it.armed) {
            world.ready.insert(flow);
        }
    }

    pub fn close(&self, flow: Token) {
        let world = &mut *self.0.borrow_mut();
        world.flows.get_mut(&flow).unwrap().closed = true;
        world.ready.insert(flow);
    }

    /// Calls the transport while it has something to do now.
    pub fn run(&mut self, transport: &mut ProxyServer) -> Wakeup {
        let mut wakeup = Wakeup::Again;
        for _ in 0..10_000 {
            let ready: Vec<Token> = std::mem::take(&mut self.0.borrow_mut().ready)
                .into_iter()
                .collect();
            let due = matches!(wakeup, Wakeup::At(due) if due <= self.now());
            if ready.is_empty() && wakeup != Wakeup::Again && !due {
                return wakeup;
            }
            wakeup = transport.process(&ready, self);
        }
        panic!("it does not come to rest");
    }
}

impl Host for DatagramHost {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        assert_eq!(label, "listen");
        self.0.borrow_mut().socket = Some(token);
        Ok(Box::new(Socket(self.clone())))
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(&mut self, _: &FlowInfo, _: Token) -> Result<Box<dyn ByteStream>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        let world = &mut *self.0.borrow_mut();
        if world.refuse {
            return Err(ErrorCode::LimitReached);
        }
        let flow = Flow {
            info: info.clone(),
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            armed: true,
            closed: false,
            gone: false,
            most: usize::MAX,
        };
        assert!(
            world.flows.insert(token, flow).is_none(),
            "a token is used twice"
        );
        world.opened.push(token);
        Ok(Box::new(FlowEnd(self.clone(), token)))
    }

    fn log(&mut self, level: Level, _: &str, _: &str) {
        assert!(level <= Level::Debug, "strangers do not fill the log");
    }

    fn log_enabled(&self, _: Level) -> bool {
        true
    }

    fn now(&self) -> Instant {
        self.0.borrow().now
    }
}

struct Socket(DatagramHost);

impl DatagramSocket for Socket {
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        let world = &mut *self.0.0.borrow_mut();
        let mut batch = DatagramBatch::default();
        while batch.datagrams.len() < max_datagrams as usize
            && let Some((_, next)) = world.waiting.front()
            && batch.payload.len() + next.len() <= max_bytes as usize
            && let Some((remote, datagram)) = world.waiting.pop_front()
        {
            batch.payload.extend(&datagram);
            batch.datagrams.push(Datagram {
                len: datagram.len() as u32,
                segment_size: None,
                remote,
                local: Some("10.0.0.1".parse().unwrap()),
                ecn: Ecn::NotEct,
            });
        }
        world.armed = world.waiting.is_empty();
        Ok(batch)
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        let world = &mut *self.0.0.borrow_mut();
        let mut taken = 0;
        for (entry, datagram) in batch.iter() {
            if world.room == Some(0) {
                break;
            }
            world.room = world.room.map(|room| room - 1);
            world
                .sent
                .push((entry.remote, entry.local, datagram.to_vec()));
            taken += 1;
        }
        Ok(taken)
    }

    fn local_address(&self) -> SocketAddr {
        LOCAL.parse().unwrap()
    }
}

struct FlowEnd(DatagramHost, Token);

impl DatagramFlow for FlowEnd {
    fn receive(
        &mut self,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode> {
        let world = &mut *self.0.0.borrow_mut();
        let flow = world.flows.get_mut(&self.1).unwrap();
        if flow.outgoing.is_empty() && flow.closed {
            return Ok(None);
        }
        let mut datagrams = Datagrams::default();
        while datagrams.lengths.len() < max_datagrams as usize
            && let Some(next) = flow.outgoing.front()
            && datagrams.payload.len() + next.len() <= max_bytes as usize
        {
            datagrams.push(next);
            flow.outgoing.pop_front();
        }
        flow.armed = datagrams.lengths.len() < max_datagrams as usize;
        if flow.armed && (flow.closed || !flow.outgoing.is_empty()) {
            world.ready.insert(self.1);
        }
        Ok(Some(datagrams))
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        let world = &mut *self.0.0.borrow_mut();
        let flow = world.flows.get_mut(&self.1).unwrap();
        if flow.closed {
            return Err(ErrorCode::ConnectionAborted);
        }
        let room = flow.most.saturating_sub(flow.incoming.len());
        let taken = room.min(datagrams.lengths.len());
        flow.incoming
            .extend(datagrams.iter().take(taken).map(<[u8]>::to_vec));
        Ok(taken as u32)
    }
}

impl Drop for FlowEnd {
    fn drop(&mut self) {
        self.0.0.borrow_mut().flows.get_mut(&self.1).unwrap().gone = true;
    }
}
