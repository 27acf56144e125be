//! The state of a program, which the host's functions work on. `program` makes it.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use watm_engine::limiter::Limiter;
use watm_net::account::Charge;
use watm_net::counters::Counters;
use watm_net::quota::{Permit, Quota};

use crate::connection::Surroundings;
use crate::network::Network;

/// The state of one instance.
pub(crate) struct State {
    pub(crate) wasi: WasiCtx,
    pub(crate) table: ResourceTable,
    pub(crate) network: Arc<Network>,
    pub(crate) around: Surroundings,
    /// The count of sockets.
    pub(crate) descriptors: Quota,
    /// The parts of the limits that sockets for datagrams have taken, by their handles.
    pub(crate) udp: HashMap<u32, Taken>,
    pub(crate) limiter: Limiter,
    pub(crate) counters: Arc<Counters>,
}

/// The parts of a program's limits that a socket has taken.
pub(crate) struct Taken {
    _permit: Permit,
    _charge: Charge,
}

impl Taken {
    pub(crate) fn new(permit: Permit, charge: Charge) -> Taken {
        Taken {
            _permit: permit,
            _charge: charge,
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}
