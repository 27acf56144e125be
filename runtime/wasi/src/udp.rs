//! Datagrams: `wasmtime-wasi` has the sockets, and this module their number and their addresses.
//! `program` uses it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::UdpSocket;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily};
use wasmtime_wasi::p2::bindings::sockets::{udp, udp_create_socket};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSockets, WasiSocketsView};
use watm_engine::cpu_meter::CpuMeter;

use crate::network::Network;
use crate::state::{State, Taken};

/// The interfaces, with the version of `wasmtime-wasi`: the functions below replace some of its own.
const INTERFACE: &str = "wasi:sockets/udp@0.2.12";
const CREATION: &str = "wasi:sockets/udp-create-socket@0.2.12";

/// The bytes that a socket keeps for the next datagram.
const BUFFER: usize = 64 << 10;

/// Links the sockets of `wasmtime-wasi`. Each takes a descriptor of the program's limit.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    udp::add_to_linker::<State, WasiSockets>(linker, State::sockets)?;
    linker.allow_shadowing(true);
    linker.instance(INTERFACE)?.resource(
        "udp-socket",
        ResourceType::host::<UdpSocket>(),
        |mut store, rep| {
            let state = store.data_mut();
            let socket = Resource::<UdpSocket>::new_own(rep);
            udp::HostUdpSocket::drop(&mut state.sockets(), socket)?;
            state.udp.remove(&rep);
            Ok(())
        },
    )?;
    linker.allow_shadowing(false);
    linker.instance(CREATION)?.func_wrap_async(
        "create-udp-socket",
        |mut store: StoreContextMut<'_, State>, (family,): (IpAddressFamily,)| {
            Box::new(async move { Ok((create(store.data_mut(), family).await?,)) })
        },
    )
}

async fn create(
    state: &mut State,
    family: IpAddressFamily,
) -> wasmtime::Result<Result<Resource<UdpSocket>, ErrorCode>> {
    let Some(permit) = state.descriptors.permit() else {
        return Ok(Err(ErrorCode::NewSocketLimit));
    };
    let Ok(charge) = state.counters.account.charge(BUFFER) else {
        return Ok(Err(ErrorCode::NewSocketLimit));
    };
    let taken = Taken::new(permit, charge);
    let mut sockets = state.sockets();
    match udp_create_socket::Host::create_udp_socket(&mut sockets, family).await {
        Ok(socket) => {
            state.udp.insert(socket.rep(), taken);
            Ok(Ok(socket))
        }
        // The program gets the code of an error; others end it.
        Err(error) => error.downcast().map(Err),
    }
}

/// Returns the check of each address that a socket of the program is used with.
pub(crate) fn check(
    network: Arc<Network>,
    cpu: CpuMeter,
) -> impl Fn(SocketAddr, SocketAddrUse) -> Pin<Box<dyn Future<Output = bool> + Send + Sync>>
+ Send
+ Sync
+ 'static {
    move |address, wanted| {
        let may = match wanted {
            SocketAddrUse::UdpBind => network.may_bind(address),
            SocketAddrUse::UdpSend => network.may_send(address),
            SocketAddrUse::UdpReceive => network.may_receive(address),
            // The host's own sockets serve TCP.
            SocketAddrUse::TcpBind
            | SocketAddrUse::TcpListen
            | SocketAddrUse::TcpAccept
            | SocketAddrUse::TcpConnect => false,
        };
        if may && !matches!(wanted, SocketAddrUse::UdpBind) {
            cpu.moves();
        }
        Box::pin(std::future::ready(may))
    }
}
