//! The host: a socket whose other end is the test, and the application of the network stack's
//! tests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramFlow, DatagramSocket, Destination, Ecn, ErrorCode,
    FlowInfo, Host, Instant, Level, Listener, Lookup, Mailbox, Token,
};

use super::directory::Directory;
use super::inner::Application;
use super::letters::Letters;
use super::streams::Streams;

pub struct SimHost {
    pub app: Application,
    pub logs: Vec<(Level, String)>,
    /// The lowest level that is logged.
    pub log_level: Level,
    /// The requested interval between calls.
    pub interval: Duration,
    socket: Rc<RefCell<Socket>>,
    /// The streams that replace the socket.
    pub streams: Option<Streams>,
    /// The connection to other generations.
    pub mailbox: Option<Letters>,
    /// The directory for lookups of names, if any.
    pub directory: Option<Directory>,
}

struct Socket {
    address: SocketAddr,
    token: Option<Token>,
    ready: bool,
    armed_to_read: bool,
    armed_to_write: bool,
    incoming: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Its number among the sockets of its address, and how many there are.
    place: (u32, u32),
    /// The batches that it passed to others.
    passes: Vec<(u32, DatagramBatch)>,
    /// The batches that others passed to it.
    passed: VecDeque<DatagramBatch>,
    /// The batches as they were sent.
    batches: Vec<DatagramBatch>,
    /// Datagrams taken since the last look.
    sent: Vec<(SocketAddr, Option<IpAddr>, Vec<u8>)>,
    /// The entries accepted before the network is full.
    room: usize,
    /// The local address that datagrams are sent to.
    local: Option<IpAddr>,
    /// The mark that datagrams arrive with.
    ecn: Ecn,
    /// The longest datagram that gets through, and the known value.
    longest: Option<usize>,
    told: Option<usize>,
    dont_fragment: bool,
    /// The number of datagrams that were longer.
    too_long: u64,
    /// Hosts that reported port unreachable.
    unreachable: Vec<IpAddr>,
}

impl SimHost {
    pub fn new(address: SocketAddr, now: Instant) -> Self {
        let mut app = Application::default();
        app.set_now(now);
        SimHost {
            app,
            logs: Vec::new(),
            log_level: Level::Trace,
            interval: Duration::ZERO,
            socket: Rc::new(RefCell::new(Socket {
                address,
                token: None,
                ready: false,
                armed_to_read: true,
                armed_to_write: false,
                incoming: VecDeque::new(),
                place: (0, 1),
                passes: Vec::new(),
                passed: VecDeque::new(),
                batches: Vec::new(),
                sent: Vec::new(),
                room: usize::MAX,
                local: None,
                ecn: Ecn::NotEct,
                longest: None,
                told: None,
                dont_fragment: false,
                too_long: 0,
                unreachable: Vec::new(),
            })),
            streams: None,
            mailbox: None,
            directory: None,
        }
    }

    pub fn set_now(&mut self, now: Instant) {
        self.app.set_now(now);
    }

    /// Delivers a datagram from the network.
    pub fn arrive(&mut self, from: SocketAddr, datagram: &[u8]) {
        if let Some(streams) = &self.streams {
            return streams.arrive(from, datagram);
        }
        let mut socket = self.socket.borrow_mut();
        socket.incoming.push_back((from, datagram.to_vec()));
        if std::mem::take(&mut socket.armed_to_read) {
            socket.ready = true;
        }
    }

    /// Sets the place of the socket among those of its address.
    pub fn set_place(&mut self, place: (u32, u32)) {
        self.socket.borrow_mut().place = place;
    }

    /// The batches for other sockets since the last call.
    pub fn take_passes(&mut self) -> Vec<(u32, DatagramBatch)> {
        std::mem::take(&mut self.socket.borrow_mut().passes)
    }

    /// Delivers a batch from another socket.
    pub fn pass(&mut self, batch: DatagramBatch) {
        let mut socket = self.socket.borrow_mut();
        socket.passed.push_back(batch);
        socket.ready = true;
    }

    /// Sets the mark that datagrams arrive with.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        self.socket.borrow_mut().ecn = ecn;
    }

    /// Sets the number of entries that the network accepts.
    pub fn set_room(&mut self, room: usize) {
        let mut socket = self.socket.borrow_mut();
        socket.room = room;
        if room > 0 && std::mem::take(&mut socket.armed_to_write) {
            socket.ready = true;
        }
    }

    /// Sets the longest datagram. Longer ones are lost, or fragmented if the transport allows it.
    /// The transport sees `told` until one was too long.
    pub fn set_longest(&mut self, longest: Option<usize>, told: Option<usize>) {
        let mut socket = self.socket.borrow_mut();
        socket.longest = longest;
        socket.told = told;
    }

    /// Reports port unreachable from a machine.
    pub fn report_unreachable(&mut self, machine: IpAddr) {
        self.socket.borrow_mut().unreachable.push(machine);
    }

    /// Sets the local address that datagrams are reported to arrive at.
    pub fn set_local(&mut self, local: IpAddr) {
        self.socket.borrow_mut().local = Some(local);
    }

    /// The number of datagrams that were too long since the last call.
    pub fn take_too_long(&mut self) -> u64 {
        std::mem::take(&mut self.socket.borrow_mut().too_long)
    }

    /// Datagrams that arrived and were not received.
    pub fn take_incoming(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut socket = self.socket.borrow_mut();
        socket.armed_to_read = true;
        socket.incoming.drain(..).collect()
    }

    pub fn take_ready(&mut self) -> Vec<Token> {
        let mut ready = self.app.take_ready();
        ready.extend(self.mailbox.as_ref().and_then(Letters::take_ready));
        ready.extend(self.directory.iter().flat_map(Directory::take_ready));
        if let Some(streams) = &self.streams {
            ready.extend(streams.take_ready());
        }
        let mut socket = self.socket.borrow_mut();
        if std::mem::take(&mut socket.ready) {
            ready.extend(socket.token);
        }
        ready
    }

    pub fn take_sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        if let Some(streams) = &self.streams {
            return streams.take_sent();
        }
        self.take_sent_with_local()
            .into_iter()
            .map(|(to, _, datagram)| (to, datagram))
            .collect()
    }

    pub fn take_sent_with_local(&mut self) -> Vec<(SocketAddr, Option<IpAddr>, Vec<u8>)> {
        std::mem::take(&mut self.socket.borrow_mut().sent)
    }

    pub fn take_batches(&mut self) -> Vec<DatagramBatch> {
        std::mem::take(&mut self.socket.borrow_mut().batches)
    }
}

impl Host for SimHost {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        if label != "listen" || self.streams.is_some() {
            return Err(ErrorCode::AccessDenied);
        }
        let mut socket = self.socket.borrow_mut();
        if socket.token.replace(token).is_some() {
            return Err(ErrorCode::InvalidState);
        }
        Ok(Box::new(SocketEnd(Rc::clone(&self.socket))))
    }

    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        match &self.streams {
            Some(streams) => Ok(streams.listener(token)),
            None => self.app.listener(label, token),
        }
    }

    fn connect(
        &mut self,
        destination: &Destination,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        match (&self.streams, destination) {
            (Some(streams), Destination::Address(remote)) if remote.port() != 0 => {
                streams.connect(*remote, token)
            }
            _ => Err(ErrorCode::NotSupported),
        }
    }

    fn coalesce(&mut self, interval: Duration) {
        self.interval = interval;
    }

    fn lookup(
        &mut self,
        name: &str,
        port: u16,
        token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        match &self.directory {
            Some(directory) => directory.begin(name, port, token),
            None => Err(ErrorCode::NotSupported),
        }
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        self.app.open_stream(info, token)
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        self.app.open_datagrams(info, token)
    }

    fn mailbox(&mut self, token: Token) -> Result<Box<dyn Mailbox>, ErrorCode> {
        match &self.mailbox {
            Some(letters) => Ok(letters.open(token)),
            None => Err(ErrorCode::NotSupported),
        }
    }

    fn log(&mut self, level: Level, _: &str, message: &str) {
        self.logs.push((level, message.to_owned()));
    }

    fn log_enabled(&self, level: Level) -> bool {
        level >= self.log_level
    }

    fn now(&self) -> Instant {
        self.app.now()
    }
}

struct SocketEnd(Rc<RefCell<Socket>>);

impl DatagramSocket for SocketEnd {
    /// Datagrams of one size from one address form a train.
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        let mut socket = self.0.borrow_mut();
        let mut batch = DatagramBatch::default();
        let (local, ecn) = (socket.local, socket.ecn);
        while let Some((from, datagram)) = socket.incoming.front() {
            if batch.payload.len() + datagram.len() > max_bytes as usize {
                break;
            }
            let len = datagram.len() as u32;
            let joins = batch.datagrams.last().is_some_and(|last: &Datagram| {
                last.remote == *from
                    && last.segment_size.map_or(last.len, u32::from) == len
                    && len > 0
            });
            let full = batch.datagrams.len() == max_datagrams as usize;
            match batch.datagrams.last_mut() {
                Some(last) if joins => {
                    last.segment_size = Some(len as u16);
                    last.len += len;
                }
                _ if full => break,
                _ => batch.datagrams.push(Datagram {
                    len,
                    segment_size: None,
                    remote: *from,
                    local,
                    ecn,
                }),
            }
            batch.payload.extend_from_slice(datagram);
            socket.incoming.pop_front();
        }
        socket.armed_to_read = socket.incoming.is_empty();
        Ok(batch)
    }

    fn place(&self) -> (u32, u32) {
        self.0.borrow().place
    }

    fn pass(&mut self, number: u32, batch: &DatagramBatch) -> Result<(), ErrorCode> {
        let mut socket = self.0.borrow_mut();
        assert!(number < socket.place.1 && number != socket.place.0);
        socket.passes.push((number, batch.clone()));
        Ok(())
    }

    fn passed(&mut self, _: u32, _: u32) -> DatagramBatch {
        self.0.borrow_mut().passed.pop_front().unwrap_or_default()
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        let mut socket = self.0.borrow_mut();
        let total: u32 = batch.datagrams.iter().map(|datagram| datagram.len).sum();
        assert_eq!(total as usize, batch.payload.len(), "the lengths add up");
        let taken = socket.room.min(batch.datagrams.len());
        let mut rest = batch.payload.as_slice();
        let mut lost = false;
        for datagram in &batch.datagrams[..taken] {
            let (bytes, tail) = rest.split_at(datagram.len as usize);
            rest = tail;
            let size = datagram.segment_size.map_or(bytes.len(), usize::from);
            assert!(bytes.len() <= 65_507 && bytes.len().div_ceil(size) <= 64);
            for segment in bytes.chunks(size) {
                let fits = socket
                    .longest
                    .is_none_or(|longest| segment.len() <= longest);
                if !fits {
                    socket.too_long += 1;
                    // A router reports the first loss, and the host knows about the later ones.
                    lost |= socket.dont_fragment && socket.told == socket.longest;
                    socket.told = socket.longest;
                }
                if fits || !socket.dont_fragment {
                    socket
                        .sent
                        .push((datagram.remote, datagram.local, segment.to_vec()));
                }
            }
        }
        if socket.room != usize::MAX {
            socket.room -= taken;
        }
        socket.armed_to_write = taken < batch.datagrams.len();
        socket.batches.push(batch.clone());
        if lost && taken == batch.datagrams.len() {
            return Err(ErrorCode::DatagramTooLarge);
        }
        Ok(taken as u32)
    }

    fn longest(&self, _: SocketAddr) -> Option<u32> {
        self.0.borrow().told.map(|bytes| bytes as u32)
    }

    fn set_dont_fragment(&mut self, on: bool) {
        self.0.borrow_mut().dont_fragment = on;
    }

    fn take_unreachable(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.0.borrow_mut().unreachable)
    }

    fn local_address(&self) -> SocketAddr {
        self.0.borrow().address
    }
}
