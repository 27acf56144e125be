//! The import `sockets`: granted sockets of `net`, connections of `connect`, and the module's ends
//! of stream flows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use tokio::runtime::Handle;
use wasmtime::component::Resource;

use super::bindings::watm::transport::{pacing, sockets, types};
use super::connect::{Dialled, Request};
use super::convert::{
    address_from_guest, address_to_guest, check_destination, ecn_from_guest, ecn_to_guest,
    ip_from_guest, ip_to_guest,
};
use super::{Failure, HostObject, State};
use crate::recording::{Digest, import};
use crate::{Destination, ErrorCode, Target};
use watm_net::flow::GuestStream;
use watm_net::log_refusal;
use watm_net::ports::{DatagramPort, FRESH, Port};
use watm_net::sockets::{Connection, Entry, Protocol, TcpPort};
use watm_policy::access::Access;

/// A granted datagram socket, taken by an instance.
pub struct DatagramSocket {
    label: String,
    port: Arc<DatagramPort>,
    waker: Waker,
    /// The loss that the next whole `send` reports to the module.
    lost: Lost,
    /// The address of the latest datagrams that were admitted, and when that was checked.
    admitted: Option<(SocketAddr, Instant)>,
}

/// The reasons for which datagrams were dropped that the host had accepted.
#[derive(Default)]
struct Lost {
    too_long: bool,
    denied: bool,
}

/// A granted listener, taken by an instance.
pub struct Listener {
    label: String,
    port: Arc<TcpPort>,
    waker: Waker,
}

/// A byte stream: a flow to the application, an accepted connection, or a dialled one.
pub enum ByteStream {
    /// A flow to the application.
    Flow(GuestStream),
    /// A connection that was accepted.
    Connection(Connection, Waker),
    /// A connection that the module makes.
    Dialled(Dialled, Waker),
}

impl HostObject for DatagramSocket {
    fn bytes(&self) -> usize {
        self.label.len()
    }
}

impl HostObject for Listener {
    fn bytes(&self) -> usize {
        self.label.len()
    }
}

impl HostObject for ByteStream {
    fn bytes(&self) -> usize {
        /// The memory of a socket in the executor, in bytes.
        const CONNECTION: usize = 1024;
        /// The memory of the attempt to make one, in bytes: a future, and the names of the
        /// destination.
        const DIALLED: usize = 4096;
        match self {
            // A flow is charged separately.
            ByteStream::Flow(_) => 0,
            ByteStream::Connection(..) => CONNECTION,
            ByteStream::Dialled(..) => DIALLED,
        }
    }
}

impl State {
    /// Returns true if what arrives on the sockets is for this generation.
    pub(super) fn serves(&self) -> bool {
        self.mailboxes.serving() == self.generation
    }

    /// Notes that the instance has taken the socket, which it may do once. Returns a waker that is
    /// armed for reading: data that has already arrived is announced.
    pub(super) fn take(
        &mut self,
        protocol: Protocol,
        label: &str,
        token: u64,
    ) -> Result<Waker, Failure> {
        let key = (protocol, label.to_owned());
        if self.taken.contains_key(&key) {
            return Err(ErrorCode::InvalidState.into());
        }
        let token = self.token(token)?;
        token.notify();
        self.taken.insert(key, token.clone());
        Ok(token.into())
    }

    pub(super) fn port(&self, protocol: Protocol, label: &str) -> Option<&Port> {
        self.ports
            .iter()
            .find(|(known, port)| known == label && port.protocol() == protocol)
            .map(|(_, port)| port)
    }
}

impl sockets::Host for State {
    fn connect(
        &mut self,
        destination: types::Destination,
        token: u64,
    ) -> Result<Resource<ByteStream>, Failure> {
        self.turn(import::Connect, || (&destination, token))
            .take(self, |state| {
                state.open_connection(&destination.into(), token)
            })
            .map(Resource::new_own)
    }

    fn coalesce(&mut self, microseconds: u32) -> wasmtime::Result<()> {
        pacing::Host::coalesce(self, microseconds)
    }
}

impl sockets::HostDatagramSocket for State {
    fn open(&mut self, label: String, token: u64) -> Result<Resource<DatagramSocket>, Failure> {
        self.turn(import::DatagramSocketOpen, || (&label, token))
            .take(self, |state| state.open_datagram_socket(&label, token))
            .map(Resource::new_own)
    }

    fn receive(
        &mut self,
        socket: Resource<DatagramSocket>,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<sockets::DatagramBatch, Failure> {
        self.turn(import::DatagramSocketReceive, || {
            (socket.rep(), max_datagrams, max_bytes)
        })
        .take(self, |state| {
            let socket = state.table.get(&socket)?;
            if !state.serves() {
                return Ok(sockets::DatagramBatch {
                    payload: Vec::new(),
                    datagrams: Vec::new(),
                });
            }
            let (payload, entries) = socket.port.receive(
                max_datagrams as usize,
                max_bytes as usize,
                &mut Context::from_waker(&socket.waker),
            );
            state.moved |= !entries.is_empty();
            Ok(sockets::DatagramBatch {
                datagrams: entries.into_iter().map(info_of).collect(),
                payload,
            })
        })
    }

    fn send(
        &mut self,
        socket: Resource<DatagramSocket>,
        batch: sockets::DatagramBatch,
    ) -> Result<u32, Failure> {
        self.turn(import::DatagramSocketSend, || {
            (socket.rep(), Digest::of(&batch.payload), &batch.datagrams)
        })
        .take(self, |state| state.send_batch(&socket, batch))
    }

    fn longest(
        &mut self,
        socket: Resource<DatagramSocket>,
        remote: types::IpSocketAddress,
    ) -> wasmtime::Result<Option<u32>> {
        self.turn(import::DatagramSocketLongest, || (socket.rep(), remote))
            .take(self, |state| {
                let longest = state
                    .table
                    .get(&socket)?
                    .port
                    .longest(address_from_guest(remote));
                Ok(longest.and_then(|bytes| u32::try_from(bytes).ok()))
            })
            .map_err(Failure::into_trap)
    }

    fn set_dont_fragment(
        &mut self,
        socket: Resource<DatagramSocket>,
        on: bool,
    ) -> wasmtime::Result<()> {
        self.turn(import::DatagramSocketSetDontFragment, || (socket.rep(), on))
            .take(self, |state| {
                state.table.get(&socket)?.port.set_dont_fragment(on);
                Ok(())
            })
            .map_err(Failure::into_trap)
    }

    fn take_unreachable(
        &mut self,
        socket: Resource<DatagramSocket>,
    ) -> wasmtime::Result<Vec<types::IpAddress>> {
        self.turn(import::DatagramSocketTakeUnreachable, || (socket.rep(),))
            .take(self, |state| {
                let hosts = state.table.get(&socket)?.port.take_unreachable();
                Ok(hosts.into_iter().map(ip_to_guest).collect())
            })
            .map_err(Failure::into_trap)
    }

    fn local_address(
        &mut self,
        socket: Resource<DatagramSocket>,
    ) -> wasmtime::Result<types::IpSocketAddress> {
        self.turn(import::DatagramSocketLocalAddress, || (socket.rep(),))
            .take(self, |state| {
                let socket = state.table.get(&socket)?;
                Ok(address_to_guest(socket.port.local_addr()))
            })
            .map_err(Failure::into_trap)
    }

    fn place(&mut self, socket: Resource<DatagramSocket>) -> wasmtime::Result<sockets::Place> {
        self.turn(import::DatagramSocketPlace, || (socket.rep(),))
            .take(self, |state| {
                let (number, count) = state.table.get(&socket)?.port.place().number_of();
                // An address has at most 1024 sockets.
                let (number, count) = (number as u32, count as u32);
                Ok(sockets::Place { number, count })
            })
            .map_err(Failure::into_trap)
    }

    fn pass(
        &mut self,
        socket: Resource<DatagramSocket>,
        number: u32,
        batch: sockets::DatagramBatch,
    ) -> Result<(), Failure> {
        self.turn(import::DatagramSocketPass, || {
            (
                socket.rep(),
                number,
                Digest::of(&batch.payload),
                &batch.datagrams,
            )
        })
        .take(self, |state| state.pass_batch(&socket, number, batch))
    }

    fn passed(
        &mut self,
        socket: Resource<DatagramSocket>,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> wasmtime::Result<sockets::DatagramBatch> {
        self.turn(import::DatagramSocketPassed, || {
            (socket.rep(), max_datagrams, max_bytes)
        })
        .take(self, |state| {
            let socket = state.table.get(&socket)?;
            let (payload, entries) = match state.serves() {
                true => socket.port.passed(
                    max_datagrams as usize,
                    max_bytes as usize,
                    &mut Context::from_waker(&socket.waker),
                ),
                false => (Vec::new(), Vec::new()),
            };
            state.moved |= !entries.is_empty();
            Ok(sockets::DatagramBatch {
                datagrams: entries.into_iter().map(info_of).collect(),
                payload,
            })
        })
        .map_err(Failure::into_trap)
    }

    fn drop(&mut self, socket: Resource<DatagramSocket>) -> wasmtime::Result<()> {
        self.turn(import::DatagramSocketDrop, || (socket.rep(),))
            .take(self, |state| {
                let socket = state.release(socket)?;
                state.taken.remove(&(Protocol::Udp, socket.label));
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}

impl State {
    fn open_datagram_socket(&mut self, label: &str, token: u64) -> Result<u32, Failure> {
        let Some(Port::Udp(port)) = self.port(Protocol::Udp, label) else {
            return Err(ErrorCode::AccessDenied.into());
        };
        let port = port.clone();
        let waker = self.take(Protocol::Udp, label, token)?;
        let label = label.to_owned();
        // The socket may have the setting of another instance.
        port.set_dont_fragment(false);
        let socket = DatagramSocket {
            label,
            port,
            waker,
            lost: Lost::default(),
            admitted: None,
        };
        Ok(self.keep(socket)?.rep())
    }

    fn send_batch(
        &mut self,
        socket: &Resource<DatagramSocket>,
        batch: sockets::DatagramBatch,
    ) -> Result<u32, Failure> {
        let socket = self.table.get_mut(socket)?;
        let entries = entries_of(batch.datagrams, batch.payload.len())?;
        let accepted = socket.send(&batch.payload, &entries, self.access.as_deref());
        self.hub.counters.dropped_send_denied.add(accepted.denied);
        self.moved |= accepted.entries > 0;
        if accepted.entries == entries.len() {
            // One call reports one reason.
            if std::mem::take(&mut socket.lost.too_long) {
                return Err(ErrorCode::DatagramTooLarge.into());
            }
            if std::mem::take(&mut socket.lost.denied) {
                return Err(ErrorCode::AccessDenied.into());
            }
        }
        Ok(u32::try_from(accepted.entries).unwrap_or(u32::MAX))
    }

    fn pass_batch(
        &mut self,
        socket: &Resource<DatagramSocket>,
        number: u32,
        batch: sockets::DatagramBatch,
    ) -> Result<(), Failure> {
        let socket = self.table.get_mut(socket)?;
        let entries = entries_of(batch.datagrams, batch.payload.len())?;
        let number = number as usize;
        if number >= socket.port.place().number_of().1 {
            return Err(ErrorCode::InvalidArgument.into());
        }
        let now = Instant::now();
        let access = self.access.as_deref();
        let mut rest = batch.payload.as_slice();
        for entry in entries {
            let (payload, tail) = rest.split_at(entry.len);
            rest = tail;
            // The other socket may then send there: a module must not open addresses for itself.
            let admitted = socket.admits(entry.remote, now, access);
            if !admitted || !socket.port.place().pass(number, entry, payload) {
                self.hub.counters.dropped_pass.add(entry.datagrams() as u64);
            }
        }
        self.moved = true;
        Ok(())
    }
}

/// Returns the entries of a batch. Fails if their lengths do not add up to that of the payload.
fn entries_of(infos: Vec<sockets::DatagramInfo>, len: usize) -> Result<Vec<Entry>, ErrorCode> {
    let total: u64 = infos.iter().map(|info| u64::from(info.len)).sum();
    let sane = |info: &sockets::DatagramInfo| info.segment_size != Some(0);
    if total != len as u64 || !infos.iter().all(sane) {
        return Err(ErrorCode::InvalidArgument);
    }
    let entry = |info: sockets::DatagramInfo| Entry {
        len: info.len as usize,
        segment_size: info.segment_size,
        remote: canonical(address_from_guest(info.remote_address)),
        local: info.local_address.map(ip_from_guest),
        ecn: ecn_from_guest(info.ecn),
    };
    Ok(infos.into_iter().map(entry).collect())
}

/// The outcome of a batch.
struct Accepted {
    entries: usize,
    /// The number of datagrams among them with a destination that is not allowed.
    denied: u64,
}

impl DatagramSocket {
    /// Sends the datagrams that are admitted, until there is no room. Drops those that are not.
    fn send(&mut self, payload: &[u8], entries: &[Entry], access: Option<&Access>) -> Accepted {
        let now = Instant::now();
        let mut accepted = Accepted {
            entries: 0,
            denied: 0,
        };
        let mut rest = payload;
        while let [first, ..] = &entries[accepted.entries..] {
            let admitted = self.admits(first.remote, now, access);
            let begun = &entries[accepted.entries..];
            let run = begun
                .iter()
                .take_while(|entry| self.admits(entry.remote, now, access) == admitted)
                .count();
            let bytes = begun[..run].iter().map(|entry| entry.len).sum();
            let (contents, tail) = rest.split_at(bytes);
            if admitted {
                let mut cx = Context::from_waker(&self.waker);
                let sent = self.port.send(contents, &begun[..run], &mut cx);
                self.lost.too_long |= sent.too_long;
                accepted.entries += sent.accepted;
                if sent.accepted < run {
                    break;
                }
            } else {
                if let Some(access) = access
                    && !self.lost.denied
                {
                    access.refuse_datagrams(first.remote);
                }
                self.lost.denied = true;
                accepted.denied += begun[..run].iter().map(Entry::datagrams).sum::<usize>() as u64;
                accepted.entries += run;
            }
            rest = tail;
        }
        accepted
    }

    /// Returns true if datagrams may go there.
    fn admits(&mut self, remote: SocketAddr, now: Instant, access: Option<&Access>) -> bool {
        if let Some((admitted, since)) = self.admitted
            && admitted == remote
            && now.duration_since(since) < FRESH
        {
            return true;
        }
        let mut known = self.port.known();
        let admits = known.answers(remote, now)
            || access.is_some_and(|access| access.admits_datagrams(remote, known.name(remote)));
        if admits {
            self.admitted = Some((remote, now));
        }
        admits
    }
}

/// Returns the address with an IPv4-mapped one as IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn info_of(entry: Entry) -> sockets::DatagramInfo {
    sockets::DatagramInfo {
        // A buffer of the kernel has at most 64 KiB.
        len: entry.len as u32,
        segment_size: entry.segment_size,
        remote_address: address_to_guest(entry.remote),
        local_address: entry.local.map(ip_to_guest),
        ecn: ecn_to_guest(entry.ecn),
    }
}

impl sockets::HostByteStream for State {
    fn read(
        &mut self,
        stream: Resource<ByteStream>,
        max_bytes: u32,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let max = max_bytes as usize;
        self.turn(import::ByteStreamRead, || (stream.rep(), max_bytes))
            .take(self, |state| {
                let read = match state.table.get_mut(&stream)? {
                    ByteStream::Flow(flow) => flow.read(max, &mut state.wakers)?,
                    ByteStream::Connection(connection, waker) => {
                        connection.read(max, &mut Context::from_waker(waker))?
                    }
                    ByteStream::Dialled(dialled, waker) => {
                        dialled.read(max, &mut Context::from_waker(waker), &mut state.wakers)?
                    }
                };
                state.moved |= read.as_ref().is_some_and(|data| !data.is_empty());
                Ok(read)
            })
    }

    fn write(&mut self, stream: Resource<ByteStream>, data: Vec<u8>) -> Result<u32, Failure> {
        self.turn(import::ByteStreamWrite, || {
            (stream.rep(), Digest::of(&data))
        })
        .take(self, |state| {
            let written = match state.table.get_mut(&stream)? {
                ByteStream::Flow(flow) => flow.write(data, &mut state.wakers)?,
                ByteStream::Connection(connection, waker) => {
                    connection.write(&data, &mut Context::from_waker(waker))?
                }
                ByteStream::Dialled(dialled, waker) => {
                    dialled.write(data, &mut Context::from_waker(waker), &mut state.wakers)?
                }
            };
            state.moved |= written > 0;
            // A list in a 32-bit memory is shorter than 4 GiB.
            Ok(written as u32)
        })
    }

    fn shutdown(
        &mut self,
        stream: Resource<ByteStream>,
        direction: sockets::Direction,
    ) -> Result<(), Failure> {
        let read = direction != sockets::Direction::Write;
        let write = direction != sockets::Direction::Read;
        self.turn(import::ByteStreamShutdown, || (stream.rep(), direction))
            .take(self, |state| {
                match state.table.get_mut(&stream)? {
                    ByteStream::Flow(flow) => flow.shutdown(read, write, &mut state.wakers),
                    ByteStream::Connection(connection, _) => connection.shutdown(read, write)?,
                    ByteStream::Dialled(dialled, _) => {
                        dialled.shutdown(read, write, &mut state.wakers)?;
                    }
                }
                Ok(())
            })
    }

    fn reset(
        &mut self,
        stream: Resource<ByteStream>,
        reason: types::ErrorCode,
    ) -> wasmtime::Result<()> {
        self.turn(import::ByteStreamReset, || (stream.rep(), &reason))
            .take(self, |state| {
                if let Some(answer) = state.awaited.remove(&stream.rep()) {
                    answer.tell(Err(reason.clone().into()));
                }
                match state.table.get_mut(&stream)? {
                    ByteStream::Flow(flow) => flow.reset(&reason.into(), &mut state.wakers),
                    ByteStream::Connection(connection, _) => connection.reset(),
                    ByteStream::Dialled(dialled, _) => {
                        dialled.reset(reason.into(), &mut state.wakers);
                    }
                }
                Ok(())
            })
            .map_err(Failure::into_trap)
    }

    fn remote_address(
        &mut self,
        stream: Resource<ByteStream>,
    ) -> wasmtime::Result<Option<types::IpSocketAddress>> {
        self.turn(import::ByteStreamRemoteAddress, || (stream.rep(),))
            .take(self, |state| {
                let address = match state.table.get(&stream)? {
                    ByteStream::Flow(flow) => Some(flow.source()),
                    ByteStream::Connection(connection, _) => Some(connection.remote_addr()),
                    ByteStream::Dialled(dialled, _) => dialled.remote_addr(),
                };
                Ok(address.map(address_to_guest))
            })
            .map_err(Failure::into_trap)
    }

    fn connecting(&mut self, stream: Resource<ByteStream>) -> wasmtime::Result<()> {
        self.turn(import::ByteStreamConnecting, || (stream.rep(),))
            .take(self, |state| {
                // The call has no effect on streams other than the one that is dialled.
                state.table.get(&stream)?;
                if let Some(dialling) = &mut state.dialling
                    && dialling.stream == Some(stream.rep())
                {
                    let answer = dialling.await_answer(&state.hub.name);
                    state.awaited.insert(stream.rep(), answer);
                }
                Ok(())
            })
            .map_err(Failure::into_trap)
    }

    fn connected(&mut self, stream: Resource<ByteStream>) -> wasmtime::Result<()> {
        self.turn(import::ByteStreamConnected, || (stream.rep(),))
            .take(self, |state| {
                state.table.get(&stream)?;
                if let Some(answer) = state.awaited.remove(&stream.rep()) {
                    answer.tell(Ok(()));
                }
                Ok(())
            })
            .map_err(Failure::into_trap)
    }

    fn drop(&mut self, stream: Resource<ByteStream>) -> wasmtime::Result<()> {
        self.turn(import::ByteStreamDrop, || (stream.rep(),))
            .take(self, |state| {
                state.awaited.remove(&stream.rep());
                state.release(stream)?;
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}

impl sockets::HostListener for State {
    fn open(&mut self, label: String, token: u64) -> Result<Resource<Listener>, Failure> {
        self.turn(import::ListenerOpen, || (&label, token))
            .take(self, |state| state.open_listener(&label, token))
            .map(Resource::new_own)
    }

    fn accept(
        &mut self,
        listener: Resource<Listener>,
        token: u64,
    ) -> Result<Option<Resource<ByteStream>>, Failure> {
        let stream = self
            .turn(import::ListenerAccept, || (listener.rep(), token))
            .take(self, |state| state.accept_connection(&listener, token))?;
        Ok(stream.map(Resource::new_own))
    }

    fn local_address(
        &mut self,
        listener: Resource<Listener>,
    ) -> wasmtime::Result<types::IpSocketAddress> {
        self.turn(import::ListenerLocalAddress, || (listener.rep(),))
            .take(self, |state| {
                let listener = state.table.get(&listener)?;
                Ok(address_to_guest(listener.port.local_addr()))
            })
            .map_err(Failure::into_trap)
    }

    fn drop(&mut self, listener: Resource<Listener>) -> wasmtime::Result<()> {
        self.turn(import::ListenerDrop, || (listener.rep(),))
            .take(self, |state| {
                let listener = state.release(listener)?;
                state.taken.remove(&(Protocol::Tcp, listener.label));
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}

impl State {
    fn open_connection(&mut self, destination: &Destination, token: u64) -> Result<u32, Failure> {
        check_destination(destination)?;
        let access = self.access.clone().ok_or(ErrorCode::AccessDenied)?;
        let target = Target::tcp(destination.clone());
        let asked = self.dialling.as_ref().map(|dialling| &dialling.dial);
        let own = asked.is_some_and(|dial| dial.is_to(&target));
        let runtime = asked.and_then(|dial| dial.runtime.clone());
        if let Err(refusal) = access.check(&target, own) {
            if let Some(dialling) = &mut self.dialling {
                dialling.refuse(refusal);
            }
            return Err(ErrorCode::AccessDenied.into());
        }
        let Some(permit) = self.hub.descriptors.permit() else {
            log_refusal(
                &access.name,
                &target.to_string(),
                &format!(
                    "{} connections are open, the module's limit (limits.descriptors)",
                    self.hub.limits.descriptors
                ),
            );
            return Err(ErrorCode::LimitReached.into());
        };
        let news = self
            .dialling
            .as_mut()
            .map(|dialling| dialling.admit(&access.name));
        let token = self.token(token)?;
        // The first operation begins to connect.
        token.notify();
        let request = Request {
            access,
            target,
            own,
            runtime: runtime
                .or_else(|| self.home.clone())
                .unwrap_or_else(Handle::current),
            token: token.clone(),
            limits: self.hub.limits.clone(),
        };
        let dialled = Dialled::new(request, news.unwrap_or_default(), permit);
        let stream = ByteStream::Dialled(dialled, token.into());
        Ok(self.keep(stream)?.rep())
    }

    fn open_listener(&mut self, label: &str, token: u64) -> Result<u32, Failure> {
        let Some(Port::Tcp(port)) = self.port(Protocol::Tcp, label) else {
            return Err(ErrorCode::AccessDenied.into());
        };
        let port = port.clone();
        let waker = self.take(Protocol::Tcp, label, token)?;
        let label = label.to_owned();
        let listener = Listener { label, port, waker };
        Ok(self.keep(listener)?.rep())
    }

    fn accept_connection(
        &mut self,
        listener: &Resource<Listener>,
        token: u64,
    ) -> Result<Option<u32>, Failure> {
        let listener = self.table.get(listener)?;
        if !self.serves() {
            return Ok(None);
        }
        let mut cx = Context::from_waker(&listener.waker);
        let Some(permit) = self.hub.descriptors.permit() else {
            listener.port.pause(&mut cx);
            return Ok(None);
        };
        let Some(connection) = listener.port.accept(&mut cx)? else {
            return Ok(None);
        };
        let connection = connection.holding(permit);
        let token = self.token(token)?;
        token.notify();
        let stream = ByteStream::Connection(connection, token.into());
        Ok(Some(self.keep(stream)?.rep()))
    }
}
