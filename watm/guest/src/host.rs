//! [`Host`] and its resources, on the imports of the world.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{
    ByteStream, DatagramBatch, DatagramFlow, DatagramSocket, Datagrams, Destination, Direction,
    ErrorCode, FlowInfo, FlowKind, Host, Instant, Level, Listener, Lookup, Mail, Mailbox,
    MessageInfo, Messages, Token,
};

use crate::bindings::watm::transport::{flows, generations, log, pacing, sockets};
use crate::convert::{
    error_param, from_datagram, from_destination, from_direction, from_level, from_socket_address,
    to_batch, to_datagrams, to_error, to_ip, to_socket_address,
};

/// The imports, during one call.
pub struct Imports {
    pub now: Instant,
    pub log_level: Level,
}

impl Host for Imports {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        let socket = sockets::DatagramSocket::open(label, token).map_err(to_error)?;
        Ok(Box::new(Socket {
            socket,
            descriptions: Vec::new(),
        }))
    }

    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        let listener = sockets::Listener::open(label, token).map_err(to_error)?;
        Ok(Box::new(TcpListener(listener)))
    }

    fn connect(
        &mut self,
        destination: &Destination,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let destination = from_destination(destination);
        let connected = sockets::connect(destination, token).map_err(to_error)?;
        Ok(stream(connected))
    }

    fn coalesce(&mut self, interval: Duration) {
        pacing::coalesce(u32::try_from(interval.as_micros()).unwrap_or(u32::MAX));
    }

    fn lookup(
        &mut self,
        name: &str,
        port: u16,
        token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        crate::names::lookup(name, port, token)
    }

    fn accepts(&mut self, kind: FlowKind, destination: &Destination) -> bool {
        let kind = match kind {
            FlowKind::Bytes => flows::Kind::Bytes,
            FlowKind::Datagrams => flows::Kind::Datagrams,
        };
        flows::accepts(kind, from_destination(destination))
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let opened = with_info(info, |info| flows::open_stream(info, token)).map_err(to_error)?;
        Ok(stream(opened))
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        let flow = with_info(info, |info| flows::open_datagrams(info, token)).map_err(to_error)?;
        Ok(datagrams(flow))
    }

    fn mailbox(&mut self, token: Token) -> Result<Box<dyn Mailbox>, ErrorCode> {
        let mailbox = generations::Mailbox::open(token).map_err(to_error)?;
        Ok(Box::new(Letters(mailbox)))
    }

    fn log(&mut self, level: Level, target: &str, message: &str) {
        log::log(from_level(level), target, message);
    }

    fn log_enabled(&self, level: Level) -> bool {
        level >= self.log_level
    }

    fn now(&self) -> Instant {
        self.now
    }
}

fn with_info<R>(info: &FlowInfo, call: impl FnOnce(flows::FlowInfo<'_>) -> R) -> R {
    let attributes: Vec<_> = info
        .attributes
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    call(flows::FlowInfo {
        source: from_socket_address(info.source),
        destination: from_destination(&info.destination),
        peer: info.peer.as_deref(),
        underlay: info
            .underlay
            .map(|(remote, local)| (from_socket_address(remote), from_socket_address(local))),
        attributes: &attributes,
    })
}

struct Socket {
    socket: sockets::DatagramSocket,
    /// The descriptions, kept for their capacity.
    descriptions: Vec<sockets::DatagramInfo>,
}

impl DatagramSocket for Socket {
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        self.socket
            .receive(max_datagrams, max_bytes)
            .map(to_batch)
            .map_err(to_error)
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        self.descriptions.clear();
        self.descriptions
            .extend(batch.datagrams.iter().map(from_datagram));
        self.socket
            .send(sockets::DatagramBatchParam {
                payload: &batch.payload,
                datagrams: &self.descriptions,
            })
            .map_err(to_error)
    }

    fn longest(&self, remote: SocketAddr) -> Option<u32> {
        self.socket.longest(from_socket_address(remote))
    }

    fn set_dont_fragment(&mut self, on: bool) {
        self.socket.set_dont_fragment(on);
    }

    fn take_unreachable(&mut self) -> Vec<IpAddr> {
        self.socket
            .take_unreachable()
            .into_iter()
            .map(to_ip)
            .collect()
    }

    fn local_address(&self) -> SocketAddr {
        to_socket_address(self.socket.local_address())
    }

    fn place(&self) -> (u32, u32) {
        let place = self.socket.place();
        (place.number, place.count)
    }

    fn pass(&mut self, number: u32, batch: &DatagramBatch) -> Result<(), ErrorCode> {
        let datagrams: Vec<_> = batch.datagrams.iter().map(from_datagram).collect();
        let batch = sockets::DatagramBatchParam {
            payload: &batch.payload,
            datagrams: &datagrams,
        };
        self.socket.pass(number, batch).map_err(to_error)
    }

    fn passed(&mut self, max_datagrams: u32, max_bytes: u32) -> DatagramBatch {
        to_batch(self.socket.passed(max_datagrams, max_bytes))
    }
}

/// Wraps the handle of a stream.
pub fn stream(handle: sockets::ByteStream) -> Box<dyn ByteStream> {
    Box::new(Stream(handle))
}

struct Stream(sockets::ByteStream);

impl ByteStream for Stream {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        self.0.read(max_bytes).map_err(to_error)
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        self.0.write(data).map_err(to_error)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        self.0.shutdown(from_direction(direction)).map_err(to_error)
    }

    fn reset(&mut self, reason: ErrorCode) {
        self.0.reset(error_param(&reason));
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        self.0.remote_address().map(to_socket_address)
    }

    fn connecting(&mut self) {
        self.0.connecting();
    }

    fn connected(&mut self) {
        self.0.connected();
    }
}

/// Wraps the handle of a datagram flow.
pub fn datagrams(handle: flows::DatagramFlow) -> Box<dyn DatagramFlow> {
    Box::new(Flow(handle))
}

struct Flow(flows::DatagramFlow);

impl DatagramFlow for Flow {
    fn receive(
        &mut self,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode> {
        self.0
            .receive(max_datagrams, max_bytes)
            .map(|datagrams| datagrams.map(to_datagrams))
            .map_err(to_error)
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        self.0
            .send(flows::DatagramsParam {
                payload: &datagrams.payload,
                lengths: &datagrams.lengths,
            })
            .map_err(to_error)
    }

    fn set_longest(&mut self, bytes: u32) {
        self.0.set_longest(bytes);
    }
}

struct TcpListener(sockets::Listener);

impl Listener for TcpListener {
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode> {
        let accepted = self.0.accept(token).map_err(to_error)?;
        Ok(accepted.map(stream))
    }

    fn local_address(&self) -> SocketAddr {
        to_socket_address(self.0.local_address())
    }
}

struct Letters(generations::Mailbox);

impl Mailbox for Letters {
    fn receive(&mut self, max_messages: u32, max_bytes: u32) -> Mail {
        let mail = self.0.receive(max_messages, max_bytes);
        let messages = mail.messages.messages.iter().map(|info| MessageInfo {
            generation: info.generation,
            len: info.len,
        });
        Mail {
            messages: Messages {
                messages: messages.collect(),
                payload: mail.messages.payload,
            },
            ended: mail.ended,
        }
    }

    fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode> {
        let infos: Vec<_> = messages
            .messages
            .iter()
            .map(|info| generations::MessageInfo {
                generation: info.generation,
                len: info.len,
            })
            .collect();
        self.0
            .send(generations::MessagesParam {
                payload: &messages.payload,
                messages: &infos,
            })
            .map_err(to_error)
    }
}
