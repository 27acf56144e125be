//! The host and the application around the stack.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use watm_core::{
    ByteStream, DatagramFlow, DatagramSocket, Datagrams, Destination, Direction, ErrorCode,
    FlowInfo, FlowKind, Host, Instant, Level, Listener, Token,
};

/// The host and the application behind it, with the strictest readiness: a token is listed once,
/// after a call moved less than it was asked to.
#[derive(Default)]
pub struct Application {
    now: Instant,
    ready: Rc<RefCell<BTreeSet<Token>>>,
    streams: Vec<StreamEnd>,
    flows: Vec<DatagramEnd>,
    /// The error that refuses the next flows.
    pub refuse: Option<ErrorCode>,
    /// The accepted destinations; by default all.
    pub takes: Option<Vec<(FlowKind, Destination)>>,
    /// The bytes that a stream accepts before the application reads.
    pub room: Option<usize>,
}

impl Application {
    pub fn set_now(&mut self, now: Instant) {
        assert!(now >= self.now, "time goes forward");
        self.now = now;
    }

    /// All streams that were ever opened.
    pub fn streams(&self) -> &[StreamEnd] {
        &self.streams
    }

    pub fn flows(&self) -> &[DatagramEnd] {
        &self.flows
    }

    /// A stream for the stack to carry, and the application's end of it.
    pub fn new_stream(&mut self) -> (StreamEnd, Box<dyn ByteStream>) {
        let end = StreamEnd(Rc::new(RefCell::new(Stream {
            info: None,
            token: 0,
            ready: Rc::clone(&self.ready),
            incoming: VecDeque::new(),
            room: self.room.unwrap_or(usize::MAX),
            outgoing: VecDeque::new(),
            closed: false,
            aborted: false,
            ended: false,
            finished: false,
            reset: None,
            progress: Progress::None,
            gone: false,
            read_armed: true,
            write_armed: false,
        })));
        (end.clone(), Box::new(HostStream(end)))
    }

    /// A datagram flow for the stack to carry, and the application's end of it.
    pub fn new_datagrams(&mut self) -> (DatagramEnd, Box<dyn DatagramFlow>) {
        let end = DatagramEnd(Rc::new(RefCell::new(Flow {
            info: None,
            token: 0,
            ready: Rc::clone(&self.ready),
            incoming: Vec::new(),
            room: self.room.unwrap_or(usize::MAX),
            outgoing: VecDeque::new(),
            longest: None,
            closed: false,
            gone: false,
            read_armed: true,
        })));
        (end.clone(), Box::new(HostFlow(end)))
    }

    pub fn take_ready(&mut self) -> Vec<Token> {
        self.ready.take().into_iter().collect()
    }

    pub fn is_quiet(&self) -> bool {
        self.ready.borrow().is_empty()
    }
}

impl Host for Application {
    fn datagram_socket(&mut self, _: &str, _: Token) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn accepts(&mut self, kind: FlowKind, destination: &Destination) -> bool {
        let takes = self.takes.as_ref();
        takes.is_none_or(|takes| takes.contains(&(kind, destination.clone())))
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        if let Some(error) = &self.refuse {
            return Err(error.clone());
        }
        let (end, stream) = self.new_stream();
        end.set_token(token);
        end.0.borrow_mut().info = Some(info.clone());
        self.streams.push(end);
        Ok(stream)
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        if let Some(error) = &self.refuse {
            return Err(error.clone());
        }
        let (end, flow) = self.new_datagrams();
        end.set_token(token);
        end.0.borrow_mut().info = Some(info.clone());
        self.flows.push(end);
        Ok(flow)
    }

    fn log(&mut self, _: Level, _: &str, _: &str) {}

    fn log_enabled(&self, _: Level) -> bool {
        false
    }

    fn now(&self) -> Instant {
        self.now
    }
}

struct Stream {
    /// The description of a flow that the stack opened.
    info: Option<FlowInfo>,
    token: Token,
    ready: Rc<RefCell<BTreeSet<Token>>>,
    incoming: VecDeque<u8>,
    room: usize,
    outgoing: VecDeque<u8>,
    closed: bool,
    aborted: bool,
    ended: bool,
    finished: bool,
    reset: Option<ErrorCode>,
    progress: Progress,
    gone: bool,
    read_armed: bool,
    write_armed: bool,
}

/// The reported progress of a dialled stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    None,
    Connecting,
    Connected,
}

/// The application's end of a stream.
#[derive(Clone)]
pub struct StreamEnd(Rc<RefCell<Stream>>);

impl StreamEnd {
    pub fn info(&self) -> FlowInfo {
        self.0.borrow().info.clone().expect("the stack opened it")
    }

    pub fn set_token(&self, token: Token) {
        self.0.borrow_mut().token = token;
    }

    pub fn token(&self) -> Token {
        self.0.borrow().token
    }

    /// Takes the received bytes.
    pub fn read(&self) -> Vec<u8> {
        let mut stream = self.0.borrow_mut();
        let data = stream.incoming.drain(..).collect();
        if std::mem::take(&mut stream.write_armed) {
            stream.ready.borrow_mut().insert(stream.token);
        }
        data
    }

    /// Takes at most this many of the received bytes.
    pub fn read_some(&self, most: usize) -> Vec<u8> {
        let mut stream = self.0.borrow_mut();
        let count = most.min(stream.incoming.len());
        let data = stream.incoming.drain(..count).collect();
        if count > 0 && std::mem::take(&mut stream.write_armed) {
            stream.ready.borrow_mut().insert(stream.token);
        }
        data
    }

    pub fn waiting(&self) -> usize {
        self.0.borrow().incoming.len()
    }

    pub fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = room;
    }

    /// Like [`set_room`](Self::set_room), and tells the stack if it waits for room.
    pub fn make_room(&self, room: usize) {
        let mut stream = self.0.borrow_mut();
        stream.room = room;
        if room > stream.incoming.len() && std::mem::take(&mut stream.write_armed) {
            stream.ready.borrow_mut().insert(stream.token);
        }
    }

    pub fn write(&self, data: &[u8]) {
        self.0.borrow_mut().outgoing.extend(data);
        self.wake_reader();
    }

    /// The number of bytes that the stack has not taken yet.
    pub fn unsent(&self) -> usize {
        self.0.borrow().outgoing.len()
    }

    pub fn close(&self) {
        self.0.borrow_mut().closed = true;
        self.wake_reader();
    }

    pub fn abort(&self) {
        let mut stream = self.0.borrow_mut();
        stream.aborted = true;
        let (ready, token) = (Rc::clone(&stream.ready), stream.token);
        drop(stream);
        // The host lists the token whether the stack waits for bytes or not.
        ready.borrow_mut().insert(token);
        self.read();
    }

    /// Returns true if the end of the received bytes was announced.
    pub fn ended(&self) -> bool {
        self.0.borrow().ended
    }

    /// Returns true if both directions were closed before the stack released the stream.
    pub fn finished(&self) -> bool {
        self.0.borrow().finished
    }

    pub fn reset(&self) -> Option<ErrorCode> {
        self.0.borrow().reset.clone()
    }

    /// Returns true if the stack has reported that it waits for an answer.
    pub fn is_connecting(&self) -> bool {
        self.0.borrow().progress == Progress::Connecting
    }

    /// Returns true if it has reported the answer after that.
    pub fn is_connected(&self) -> bool {
        self.0.borrow().progress == Progress::Connected
    }

    /// Returns true if the stack has released the stream.
    pub fn gone(&self) -> bool {
        self.0.borrow().gone
    }

    fn wake_reader(&self) {
        let mut stream = self.0.borrow_mut();
        if std::mem::take(&mut stream.read_armed) {
            stream.ready.borrow_mut().insert(stream.token);
        }
    }
}

struct HostStream(StreamEnd);

impl ByteStream for HostStream {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        let mut stream = self.0.0.borrow_mut();
        if stream.aborted {
            return Err(ErrorCode::ConnectionReset);
        }
        if stream.outgoing.is_empty() && stream.closed {
            return Ok(None);
        }
        let count = stream.outgoing.len().min(max_bytes as usize);
        stream.read_armed = count < max_bytes as usize;
        // The end of the stream counts as one more thing to read.
        if stream.read_armed && stream.closed {
            stream.read_armed = false;
            stream.ready.borrow_mut().insert(stream.token);
        }
        Ok(Some(stream.outgoing.drain(..count).collect()))
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        let mut stream = self.0.0.borrow_mut();
        assert!(!stream.ended, "written after the end");
        if stream.aborted {
            return Err(ErrorCode::ConnectionAborted);
        }
        let room = stream.room.saturating_sub(stream.incoming.len());
        let count = room.min(data.len());
        stream.incoming.extend(&data[..count]);
        stream.write_armed = count < data.len();
        Ok(count as u32)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        let mut stream = self.0.0.borrow_mut();
        match direction {
            Direction::Write => stream.ended = true,
            Direction::Read => {}
            Direction::Both => {
                stream.ended = true;
                stream.finished = true;
            }
        }
        Ok(())
    }

    fn reset(&mut self, reason: ErrorCode) {
        self.0.0.borrow_mut().reset = Some(reason);
    }

    fn remote_address(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn connecting(&mut self) {
        let before = std::mem::replace(&mut self.0.0.borrow_mut().progress, Progress::Connecting);
        assert_eq!(before, Progress::None);
    }

    fn connected(&mut self) {
        let before = std::mem::replace(&mut self.0.0.borrow_mut().progress, Progress::Connected);
        assert_eq!(before, Progress::Connecting);
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        self.0.0.borrow_mut().gone = true;
    }
}

struct Flow {
    info: Option<FlowInfo>,
    token: Token,
    ready: Rc<RefCell<BTreeSet<Token>>>,
    incoming: Vec<Vec<u8>>,
    room: usize,
    outgoing: VecDeque<Vec<u8>>,
    longest: Option<u32>,
    closed: bool,
    gone: bool,
    read_armed: bool,
}

/// The application's end of a datagram flow.
#[derive(Clone)]
pub struct DatagramEnd(Rc<RefCell<Flow>>);

impl DatagramEnd {
    /// The description of a flow that the stack offered.
    pub fn info(&self) -> FlowInfo {
        self.0.borrow().info.clone().expect("offered")
    }

    pub fn token(&self) -> Token {
        self.0.borrow().token
    }

    pub fn set_token(&self, token: Token) {
        self.0.borrow_mut().token = token;
    }

    pub fn read(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().incoming)
    }

    pub fn write(&self, datagram: &[u8]) {
        self.0.borrow_mut().outgoing.push_back(datagram.to_vec());
        self.wake();
    }

    pub fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = room;
    }

    /// The longest datagram, as far as reported.
    pub fn longest(&self) -> Option<u32> {
        self.0.borrow().longest
    }

    /// Closes the flow, with or without telling the stack at once.
    pub fn close(&self, tell: bool) {
        self.0.borrow_mut().closed = true;
        if tell {
            self.wake();
        }
    }

    pub fn gone(&self) -> bool {
        self.0.borrow().gone
    }

    fn wake(&self) {
        let mut flow = self.0.borrow_mut();
        if std::mem::take(&mut flow.read_armed) {
            flow.ready.borrow_mut().insert(flow.token);
        }
    }
}

struct HostFlow(DatagramEnd);

impl DatagramFlow for HostFlow {
    fn receive(
        &mut self,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode> {
        let mut flow = self.0.0.borrow_mut();
        if flow.outgoing.is_empty() && flow.closed {
            return Ok(None);
        }
        let mut datagrams = Datagrams::default();
        while datagrams.lengths.len() < max_datagrams as usize
            && flow
                .outgoing
                .front()
                .is_some_and(|next| datagrams.payload.len() + next.len() <= max_bytes as usize)
        {
            datagrams.push(&flow.outgoing.pop_front().unwrap());
        }
        flow.read_armed = datagrams.lengths.is_empty();
        Ok(Some(datagrams))
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        let mut flow = self.0.0.borrow_mut();
        if flow.closed {
            return Err(ErrorCode::ConnectionAborted);
        }
        let mut count = 0;
        for datagram in datagrams.iter() {
            if flow.incoming.len() == flow.room {
                break;
            }
            flow.incoming.push(datagram.to_vec());
            count += 1;
        }
        Ok(count)
    }

    fn set_longest(&mut self, bytes: u32) {
        self.0.0.borrow_mut().longest = Some(bytes);
    }
}

impl Drop for HostFlow {
    fn drop(&mut self) {
        self.0.0.borrow_mut().gone = true;
    }
}
