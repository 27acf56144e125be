//! A listener whose connections carry datagrams, each behind its length.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use watm_core::{ByteStream, Destination, Direction, ErrorCode, FlowInfo, Host, Listener, Token};

use super::inner::{Application, StreamEnd};

#[derive(Clone, Default)]
pub struct Streams(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    /// The application whose streams are the connections.
    network: Application,
    listener: Option<Token>,
    /// True if the listener was last found empty.
    armed: bool,
    ready: bool,
    /// The connections that wait at the listener, with their data.
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    connections: Vec<(SocketAddr, StreamEnd)>,
    /// Bytes from the server that are not a whole datagram yet.
    rests: Vec<Vec<u8>>,
    /// The address that reads nothing.
    stalled: Option<SocketAddr>,
    unreachable: bool,
    connect_tries: usize,
}

impl Inner {
    /// Makes a new connection with this address at its other end.
    fn hold(&mut self, remote: SocketAddr, token: Token) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let info = FlowInfo {
            source: remote,
            destination: Destination::Address(super::SERVER.parse().unwrap()),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        let stream = self.network.open_stream(&info, token)?;
        let end = self.network.streams().last().unwrap().clone();
        self.connections.push((remote, end));
        self.rests.push(Vec::new());
        Ok(Box::new(Connection { stream, remote }))
    }
}

impl Streams {
    pub fn arrive(&self, from: SocketAddr, datagram: &[u8]) {
        let inner = &mut *self.0.borrow_mut();
        let mut framed = (datagram.len() as u16).to_be_bytes().to_vec();
        framed.extend(datagram);
        if let Some((_, stream)) = inner.connections.iter().find(|(known, _)| *known == from) {
            return stream.write(&framed);
        }
        match inner.waiting.iter_mut().find(|(known, _)| *known == from) {
            Some((_, data)) => data.extend(framed),
            None => inner.waiting.push_back((from, framed)),
        }
        inner.ready |= std::mem::take(&mut inner.armed);
    }

    pub fn take_ready(&self) -> Vec<Token> {
        let inner = &mut *self.0.borrow_mut();
        let mut ready = inner.network.take_ready();
        if std::mem::take(&mut inner.ready) {
            ready.extend(inner.listener);
        }
        ready
    }

    /// The datagrams that the server has sent.
    pub fn take_sent(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        let inner = &mut *self.0.borrow_mut();
        let mut sent = Vec::new();
        for ((remote, stream), rest) in inner.connections.iter().zip(&mut inner.rests) {
            if inner.stalled == Some(*remote) {
                continue;
            }
            rest.extend(stream.read());
            while let [high, low, ..] = rest[..] {
                let length = usize::from(u16::from_be_bytes([high, low]));
                if rest.len() < 2 + length {
                    break;
                }
                sent.push((*remote, rest[2..2 + length].to_vec()));
                rest.drain(..2 + length);
            }
        }
        sent
    }

    /// Lets this address read nothing.
    pub fn stall(&self, remote: Option<SocketAddr>) {
        self.0.borrow_mut().stalled = remote;
    }

    /// Returns true if this address is connected.
    pub fn has(&self, remote: SocketAddr) -> bool {
        let inner = self.0.borrow();
        inner.connections.iter().any(|(known, _)| *known == remote)
    }

    /// The connection of this address.
    pub fn connection(&self, remote: SocketAddr) -> StreamEnd {
        let inner = self.0.borrow();
        let found = inner.connections.iter().find(|(known, _)| *known == remote);
        found.expect("a connection").1.clone()
    }

    /// Forgets the connection of this address; its next datagram comes on another one.
    pub fn forget(&self, remote: SocketAddr) {
        let inner = &mut *self.0.borrow_mut();
        let number = inner
            .connections
            .iter()
            .position(|(known, _)| *known == remote);
        let number = number.expect("a connection");
        inner.connections.remove(number);
        inner.rests.remove(number);
    }

    /// Makes a connection from here to `remote`.
    pub fn connect(
        &self,
        remote: SocketAddr,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let inner = &mut *self.0.borrow_mut();
        inner.connect_tries += 1;
        if inner.unreachable {
            return Err(ErrorCode::RemoteUnreachable);
        }
        inner.hold(remote, token)
    }

    /// Refuses connections to other addresses from now on.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.0.borrow_mut().unreachable = unreachable;
    }

    /// The number of attempts to connect.
    pub fn connect_tries(&self) -> usize {
        self.0.borrow().connect_tries
    }

    pub fn listener(&self, token: Token) -> Box<dyn Listener> {
        let inner = &mut *self.0.borrow_mut();
        inner.listener = Some(token);
        inner.armed = true;
        Box::new(End(self.clone()))
    }
}

struct End(Streams);

impl Listener for End {
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode> {
        let inner = &mut *self.0.0.borrow_mut();
        let Some((remote, data)) = inner.waiting.pop_front() else {
            inner.armed = true;
            return Ok(None);
        };
        let stream = inner.hold(remote, token)?;
        inner.connections.last().expect("just made").1.write(&data);
        Ok(Some(stream))
    }

    fn local_address(&self) -> SocketAddr {
        super::SERVER.parse().unwrap()
    }
}

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
