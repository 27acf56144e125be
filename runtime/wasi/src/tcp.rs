//! TCP sockets: the interfaces `wasi:sockets/tcp` and `tcp-create-socket`. `program` links them.
//!
//! They are the host's own, because the host makes a program's connections, by the application's
//! connector if there is one, and lends it listeners.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;
use wasmtime::StoreContextMut;
use wasmtime::component::{
    ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType,
};
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::ShutdownType;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, Pollable, subscribe};
use watm_net::account::Charge;
use watm_net::connect::{Wire, WireKind};
use watm_net::log_refusal;
use watm_net::quota::{Permit, Quota};
use watm_net::sockets::{Admission, Admitted};
use watm_types::Error;

use crate::connection::{Connection, Kind, code_of};
use crate::network::Made;
use crate::ports::{Lent, NotLent};
use crate::state::State;

const INTERFACE: &str = "wasi:sockets/tcp@0.2.0";
const CREATION: &str = "wasi:sockets/tcp-create-socket@0.2.0";

/// The pause before another attempt to accept, after the system or the limit had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bytes that the host keeps for a socket with its streams.
const SOCKET_BYTES: usize = 1024;

/// A socket of a program.
struct TcpSocket {
    family: IpAddressFamily,
    state: TcpState,
    options: Options,
    descriptors: Quota,
    /// The place of a socket that has no connection yet.
    permit: Option<Permit>,
    _charge: Charge,
}

enum TcpState {
    New,
    /// The socket has a listener of the host's. `true` once `finish-bind` was called.
    Bound(Lent, bool),
    Listening(Listener),
    Connecting(Pin<Box<dyn Future<Output = Result<Made, ErrorCode>> + Send>>),
    /// A connection is made, which `finish-connect` has not yet taken.
    Made(Box<Result<Made, ErrorCode>>),
    Connected(Arc<Connection>),
    Closed,
}

struct Listener {
    lent: Lent,
    /// True once `finish-listen` was called.
    finished: bool,
    /// A connection that has come in, with its place.
    waiting: Option<Incoming>,
    admission: Option<Arc<dyn Admission>>,
}

struct Incoming {
    stream: TcpStream,
    permit: Permit,
    /// The decision of the application, for as long as the connection is open.
    admitted: Option<Admitted>,
}

/// The options of a socket. Those of the system's sockets stay as they are, except for keep-alive.
#[derive(Clone, Copy)]
struct Options {
    keep_alive: bool,
    keep_alive_idle: u64,
    keep_alive_interval: u64,
    keep_alive_count: u32,
    hop_limit: u8,
    receive_buffer: u64,
    send_buffer: u64,
}

impl Default for Options {
    fn default() -> Options {
        /// The values of Linux, in nanoseconds.
        const SECOND: u64 = 1_000_000_000;
        Options {
            keep_alive: false,
            keep_alive_idle: 7200 * SECOND,
            keep_alive_interval: 75 * SECOND,
            keep_alive_count: 9,
            hop_limit: 64,
            receive_buffer: 64 << 10,
            send_buffer: 64 << 10,
        }
    }
}

/// The result of a function that may fail with a code.
type Answer<T> = Result<T, ErrorCode>;

/// A connection as the program gets it.
type Streams = (Resource<DynInputStream>, Resource<DynOutputStream>);

/// A connection that came in, with its socket.
type Accepted = (
    Resource<TcpSocket>,
    Resource<DynInputStream>,
    Resource<DynOutputStream>,
);

pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(CREATION)?.func_wrap(
        "create-tcp-socket",
        |mut store: StoreContextMut<'_, State>, (family,): (IpAddressFamily,)| {
            Ok((create(store.data_mut(), family)?,))
        },
    )?;
    let mut tcp = linker.instance(INTERFACE)?;
    tcp.resource(
        "tcp-socket",
        ResourceType::host::<TcpSocket>(),
        |mut store, rep| {
            let socket = Resource::<TcpSocket>::new_own(rep);
            let socket = store.data_mut().table.delete(socket)?;
            if let TcpState::Connected(connection) = &socket.state {
                connection.release();
            }
            Ok(())
        },
    )?;
    binding(&mut tcp)?;
    connecting(&mut tcp)?;
    method(&mut tcp, "local-address", |socket, ()| socket.local())?;
    method(&mut tcp, "remote-address", |socket, ()| socket.remote())?;
    tcp.func_wrap(
        "[method]tcp-socket.is-listening",
        |store: StoreContextMut<'_, State>, (this,): (Resource<TcpSocket>,)| {
            let socket = store.data().table.get(&this)?;
            Ok((matches!(&socket.state, TcpState::Listening(it) if it.finished),))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.address-family",
        |store: StoreContextMut<'_, State>, (this,): (Resource<TcpSocket>,)| {
            Ok((store.data().table.get(&this)?.family,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.subscribe",
        |mut store: StoreContextMut<'_, State>, (this,): (Resource<TcpSocket>,)| {
            let pollable: Resource<DynPollable> = subscribe(&mut store.data_mut().table, this)?;
            Ok((pollable,))
        },
    )?;
    method(&mut tcp, "shutdown", |socket, (how,): (ShutdownType,)| {
        let TcpState::Connected(connection) = &socket.state else {
            return Err(ErrorCode::InvalidState);
        };
        let read = matches!(how, ShutdownType::Receive | ShutdownType::Both);
        let write = matches!(how, ShutdownType::Send | ShutdownType::Both);
        connection.shut(read, write);
        Ok(())
    })?;
    options(&mut tcp)
}

/// Defines a method that works on its socket alone.
fn method<Params, T>(
    tcp: &mut LinkerInstance<'_, State>,
    name: &str,
    body: impl Fn(&mut TcpSocket, Params) -> Answer<T> + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    Params: Arguments,
    T: ComponentType + Lower + Send + Sync + 'static,
{
    tcp.func_wrap(
        &format!("[method]tcp-socket.{name}"),
        move |mut store: StoreContextMut<'_, State>, params: Params::WithThis| {
            let (this, params) = Params::split(params);
            Ok((body(store.data_mut().table.get_mut(&this)?, params),))
        },
    )
}

/// The arguments of a method beside its socket.
trait Arguments: Sized + 'static {
    type WithThis: wasmtime::component::ComponentNamedList + Lift + 'static;

    fn split(all: Self::WithThis) -> (Resource<TcpSocket>, Self);
}

impl Arguments for () {
    type WithThis = (Resource<TcpSocket>,);

    fn split((this,): Self::WithThis) -> (Resource<TcpSocket>, Self) {
        (this, ())
    }
}

impl<A: ComponentType + Lift + Send + Sync + 'static> Arguments for (A,) {
    type WithThis = (Resource<TcpSocket>, A);

    fn split((this, argument): Self::WithThis) -> (Resource<TcpSocket>, Self) {
        (this, (argument,))
    }
}

fn binding(tcp: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    tcp.func_wrap(
        "[method]tcp-socket.start-bind",
        |mut store: StoreContextMut<'_, State>,
         (this, network, address): (Resource<TcpSocket>, Resource<Network>, IpSocketAddress)| {
            let state = store.data_mut();
            state.table.get(&network)?;
            Ok((start_bind(state, &this, address.into())?,))
        },
    )?;
    method(tcp, "finish-bind", |socket, ()| match &mut socket.state {
        TcpState::Bound(_, finished @ false) => {
            *finished = true;
            Ok(())
        }
        _ => Err(ErrorCode::NotInProgress),
    })?;
    method(tcp, "start-listen", |socket, ()| match socket.take() {
        TcpState::Bound(lent, true) => {
            socket.state = TcpState::Listening(Listener {
                admission: lent.admission.clone(),
                lent,
                finished: false,
                waiting: None,
            });
            Ok(())
        }
        state => {
            socket.state = state;
            Err(ErrorCode::InvalidState)
        }
    })?;
    method(tcp, "finish-listen", |socket, ()| match &mut socket.state {
        TcpState::Listening(listener) if !listener.finished => {
            listener.finished = true;
            Ok(())
        }
        _ => Err(ErrorCode::NotInProgress),
    })?;
    tcp.func_wrap(
        "[method]tcp-socket.accept",
        |mut store: StoreContextMut<'_, State>, (this,): (Resource<TcpSocket>,)| {
            Ok((accept(store.data_mut(), &this)?,))
        },
    )
}

fn connecting(tcp: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    tcp.func_wrap(
        "[method]tcp-socket.start-connect",
        |mut store: StoreContextMut<'_, State>,
         (this, network, address): (Resource<TcpSocket>, Resource<Network>, IpSocketAddress)| {
            let state = store.data_mut();
            state.table.get(&network)?;
            Ok((start_connect(state, &this, address.into())?,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.finish-connect",
        |mut store: StoreContextMut<'_, State>, (this,): (Resource<TcpSocket>,)| {
            Ok((finish_connect(store.data_mut(), &this)?,))
        },
    )
}

fn options(tcp: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    /// Defines the functions that return and set an option.
    macro_rules! option {
        ($name:literal, $field:ident: $kind:ty, $least:expr) => {
            method(tcp, $name, |socket, ()| Ok(socket.options.$field))?;
            method(tcp, concat!("set-", $name), |socket, (value,): ($kind,)| {
                if value < $least {
                    return Err(ErrorCode::InvalidArgument);
                }
                socket.options.$field = value;
                Ok(())
            })?;
        };
    }
    method(tcp, "keep-alive-enabled", |socket, ()| {
        Ok(socket.options.keep_alive)
    })?;
    method(
        tcp,
        "set-keep-alive-enabled",
        |socket, (value,): (bool,)| {
            socket.options.keep_alive = value;
            if let TcpState::Connected(connection) = &socket.state {
                connection.set_keep_alive(value);
            }
            Ok(())
        },
    )?;
    option!("keep-alive-idle-time", keep_alive_idle: u64, 1);
    option!("keep-alive-interval", keep_alive_interval: u64, 1);
    option!("keep-alive-count", keep_alive_count: u32, 1);
    option!("hop-limit", hop_limit: u8, 1);
    option!("receive-buffer-size", receive_buffer: u64, 1);
    option!("send-buffer-size", send_buffer: u64, 1);
    method(
        tcp,
        "set-listen-backlog-size",
        |_, (size,): (u64,)| match size {
            0 => Err(ErrorCode::InvalidArgument),
            _ => Ok(()),
        },
    )
}

fn create(
    state: &mut State,
    family: IpAddressFamily,
) -> wasmtime::Result<Answer<Resource<TcpSocket>>> {
    let charge = state.counters.account.charge(SOCKET_BYTES).ok();
    let (Some(permit), Some(charge)) = (state.descriptors.permit(), charge) else {
        return Ok(Err(ErrorCode::NewSocketLimit));
    };
    let socket = TcpSocket {
        family,
        state: TcpState::New,
        options: Options::default(),
        descriptors: state.descriptors.clone(),
        permit: Some(permit),
        _charge: charge,
    };
    Ok(Ok(state.table.push(socket)?))
}

fn start_bind(
    state: &mut State,
    this: &Resource<TcpSocket>,
    address: SocketAddr,
) -> wasmtime::Result<Answer<()>> {
    let socket = state.table.get_mut(this)?;
    if !matches!(socket.state, TcpState::New) {
        return Ok(Err(ErrorCode::InvalidState));
    }
    if !socket.is_of_family(address) {
        return Ok(Err(ErrorCode::InvalidArgument));
    }
    Ok(match state.network.ports.lend(address) {
        Ok(lent) => {
            socket.state = TcpState::Bound(lent, false);
            Ok(())
        }
        Err(NotLent::InUse) => Err(ErrorCode::AddressInUse),
        Err(NotLent::Denied) => {
            let name = &state.network.access.name;
            let granted: Vec<_> = state.network.ports.tcp().map(|it| it.to_string()).collect();
            let granted = match granted.is_empty() {
                true => "none is granted".to_owned(),
                false => format!("granted: {}", granted.join(", ")),
            };
            let reason = format!("{name}: not allowed to listen on tcp {address}; {granted}");
            log_refusal(name, &format!("listen {address}"), &reason);
            Err(ErrorCode::AccessDenied)
        }
    })
}

fn accept(state: &mut State, this: &Resource<TcpSocket>) -> wasmtime::Result<Answer<Accepted>> {
    let socket = state.table.get_mut(this)?;
    let (family, options, descriptors) =
        (socket.family, socket.options, socket.descriptors.clone());
    let TcpState::Listening(listener) = &mut socket.state else {
        return Ok(Err(ErrorCode::InvalidState));
    };
    let mut cx = Context::from_waker(Waker::noop());
    if listener.poll_waiting(&descriptors, &mut cx).is_pending() {
        return Ok(Err(ErrorCode::WouldBlock));
    }
    let Some(incoming) = listener.waiting.take() else {
        return Ok(Err(ErrorCode::WouldBlock));
    };
    let Incoming {
        stream,
        permit,
        admitted,
    } = incoming;
    // A charge that fails closes the connection.
    let Ok(charge) = state.counters.account.charge(SOCKET_BYTES) else {
        return Ok(Err(ErrorCode::NewSocketLimit));
    };
    state.counters.connections_accepted.add(1);
    // Latency matters more than the number of packets.
    let _ = stream.set_nodelay(true);
    let wire = Wire::tcp(stream);
    let addresses = (wire.local, wire.peer);
    let WireKind::Tcp(stream) = wire.kind else {
        return Ok(Err(ErrorCode::Unknown));
    };
    let kept = Charge::new(&state.counters.account);
    let client = wire.peer.zip(wire.local);
    let held = client.map(|client| (admitted, state.network.clients.add(client)));
    let kind = Kind::Tcp(stream);
    let connection = Connection::new(kind, addresses, permit, kept, held, &state.around);
    connection.set_keep_alive(options.keep_alive);
    let socket = TcpSocket {
        family,
        state: TcpState::Connected(connection.clone()),
        options,
        descriptors,
        permit: None,
        _charge: charge,
    };
    let socket = state.table.push(socket)?;
    let (input, output) = push(state, &socket, &connection)?;
    Ok(Ok((socket, input, output)))
}

fn start_connect(
    state: &mut State,
    this: &Resource<TcpSocket>,
    remote: SocketAddr,
) -> wasmtime::Result<Answer<()>> {
    let socket = state.table.get_mut(this)?;
    if !matches!(socket.state, TcpState::New) {
        return Ok(Err(ErrorCode::InvalidState));
    }
    let ip = remote.ip();
    if !socket.is_of_family(remote)
        || remote.port() == 0
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip != ip.to_canonical()
    {
        return Ok(Err(ErrorCode::InvalidArgument));
    }
    let network = state.network.clone();
    socket.state = TcpState::Connecting(Box::pin(async move {
        let made = network.connect(remote).await;
        made.map_err(|error| {
            tracing::debug!(target: "watm::server", server = network.access.name.as_str(), "{error}");
            match &error {
                Error::Denied { .. } => ErrorCode::AccessDenied,
                // The application takes no more flows.
                Error::Refused { .. } => ErrorCode::ConnectionRefused,
                Error::Connect { source, .. } => code_of(source),
                _ => ErrorCode::Unknown,
            }
        })
    }));
    // Begins to connect at once. The program asks for the result.
    let _ = socket.poll_connect(&mut Context::from_waker(Waker::noop()));
    Ok(Ok(()))
}

fn finish_connect(
    state: &mut State,
    this: &Resource<TcpSocket>,
) -> wasmtime::Result<Answer<Streams>> {
    let socket = state.table.get_mut(this)?;
    let _ = socket.poll_connect(&mut Context::from_waker(Waker::noop()));
    let made = match socket.take() {
        TcpState::Made(made) => *made,
        state @ TcpState::Connecting(_) => {
            socket.state = state;
            return Ok(Err(ErrorCode::WouldBlock));
        }
        state => {
            socket.state = state;
            return Ok(Err(ErrorCode::NotInProgress));
        }
    };
    let Made { kind, local, peer } = match made {
        Ok(made) => made,
        Err(code) => return Ok(Err(code)),
    };
    let Some(permit) = socket.permit.take() else {
        return Ok(Err(ErrorCode::InvalidState));
    };
    let kept = Charge::new(&state.counters.account);
    let addresses = (local, peer);
    let connection = Connection::new(kind, addresses, permit, kept, None, &state.around);
    connection.set_keep_alive(socket.options.keep_alive);
    socket.state = TcpState::Connected(connection.clone());
    Ok(Ok(push(state, this, &connection)?))
}

/// Gives the program the two streams of a connection, which it drops before the socket.
fn push(
    state: &mut State,
    socket: &Resource<TcpSocket>,
    connection: &Arc<Connection>,
) -> wasmtime::Result<Streams> {
    let (input, output) = connection.streams();
    let (input, output): (DynInputStream, DynOutputStream) = (Box::new(input), Box::new(output));
    let input = state.table.push_child(input, socket)?;
    let output = state.table.push_child(output, socket)?;
    Ok((input, output))
}

impl TcpSocket {
    fn take(&mut self) -> TcpState {
        std::mem::replace(&mut self.state, TcpState::Closed)
    }

    fn is_of_family(&self, address: SocketAddr) -> bool {
        address.is_ipv4() == matches!(self.family, IpAddressFamily::Ipv4)
    }

    /// Looks whether the connection is made.
    fn poll_connect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let TcpState::Connecting(connecting) = &mut self.state {
            let Poll::Ready(made) = connecting.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            self.state = TcpState::Made(Box::new(made));
        }
        Poll::Ready(())
    }

    fn local(&self) -> Answer<IpSocketAddress> {
        let local = match &self.state {
            TcpState::Bound(lent, true) => lent.local,
            TcpState::Listening(listener) => listener.lent.local,
            TcpState::Connected(connection) => self.known(connection.local),
            _ => return Err(ErrorCode::InvalidState),
        };
        Ok(local.into())
    }

    fn remote(&self) -> Answer<IpSocketAddress> {
        match &self.state {
            TcpState::Connected(connection) => Ok(self.known(connection.peer).into()),
            _ => Err(ErrorCode::InvalidState),
        }
    }

    /// Returns an address of this socket's family: the unspecified one for one that is not known.
    fn known(&self, address: Option<SocketAddr>) -> SocketAddr {
        match (self.family, address) {
            (IpAddressFamily::Ipv4, Some(address)) if address.is_ipv4() => address,
            (IpAddressFamily::Ipv4, _) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            (IpAddressFamily::Ipv6, Some(SocketAddr::V4(address))) => {
                (address.ip().to_ipv6_mapped(), address.port()).into()
            }
            (IpAddressFamily::Ipv6, Some(address)) => address,
            (IpAddressFamily::Ipv6, None) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }
}

impl Listener {
    /// Accepts a connection, if there is a place for it. Others wait in the kernel.
    fn poll_waiting(&mut self, descriptors: &Quota, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        while self.waiting.is_none() {
            if self.lent.is_stopped() {
                return Poll::Pending;
            }
            let Some(permit) = descriptors.permit() else {
                return Poll::Ready(Err(()));
            };
            let (stream, remote) = match ready!(self.lent.listener.poll_accept(cx)) {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(target: "watm::server", "accept: {error}");
                    return Poll::Ready(Err(()));
                }
            };
            let admitted = match &self.admission {
                None => None,
                Some(admission) => {
                    let admitted = Admitted::new(admission.clone(), remote, self.lent.local);
                    if admitted.is_none() {
                        // If this fails, the client sees an end.
                        let _ = stream.set_zero_linger();
                        continue;
                    }
                    admitted
                }
            };
            self.waiting = Some(Incoming {
                stream,
                permit,
                admitted,
            });
        }
        Poll::Ready(Ok(()))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for TcpSocket {
    async fn ready(&mut self) {
        let descriptors = self.descriptors.clone();
        if let TcpState::Listening(listener) = &mut self.state {
            while poll_fn(|cx| listener.poll_waiting(&descriptors, cx))
                .await
                .is_err()
            {
                sleep(ACCEPT_PAUSE).await;
            }
            return;
        }
        poll_fn(|cx| self.poll_connect(cx)).await;
    }
}
