//! The component host of `wit/world.wit`: an instance, and its imports, with one file for each
//! interface. `driver` and `replay` run instances.

mod bindings;
mod capture;
mod carry;
mod connect;
pub mod convert;
mod cpu;
mod crypto;
mod dialling;
mod flows;
mod generations;
mod instance;
mod log;
pub mod mailboxes;
mod names;
mod optional;
mod pacing;
mod packets;
pub mod recording;
mod signing;
mod sockets;
mod tape;
mod wasi;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;
use wasmtime::component::{HasSelf, InstancePre, Linker, Resource, ResourceTable};

pub use dialling::{Addresses, Attempts, BegunDial, Dial};
pub use instance::{Grants, Instance, ModuleStatus, StartError, Trap, Wakeup};
pub use tape::{Player, Stop, Tape};

use crate::mailboxes::Mailboxes;
use bindings::watm::transport::types;
use cpu::CpuMeter;
use dialling::{AnswerReporter, Dialling};
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::hub::Hub;
use watm_engine::limiter::Limiter;
use watm_engine::log::Logger;
use watm_engine::{Code, Module};
use watm_net::Limits;
use watm_net::account::Charge;
use watm_net::ports::Port;
use watm_net::quota::Permit;
use watm_net::ready::{ReadyList, Token, WakeBatch};
use watm_net::sockets::Protocol;
use watm_policy::Capture;
use watm_policy::access::Access;
use watm_policy::keys::Keys;
use watm_types::{
    ClientConfig, Destination, Error, ErrorCode, Family, FlowInfo, Network, PeerStatus, Target,
};

/// The types of `wit/`.
pub mod wit {
    pub use super::bindings::exports::watm::transport::endpoint;
    pub use super::bindings::watm::transport::{
        crypto, flows, generations, log, packets, sockets, types,
    };
}

/// A module with its imports resolved. Instantiating it takes microseconds.
pub struct Prepared {
    pre: InstancePre<State>,
    endpoint: bindings::ModuleIndices,
    optional: optional::Indices,
}

impl Prepared {
    fn new(module: &Module) -> Result<Prepared, String> {
        let info = module.info();
        let Code::Component(component) = module.code() else {
            return Err(format!("is a {}, not a component", info.kind));
        };
        let mismatch = |error: wasmtime::Error| {
            format!(
                "does not fit {}; build it again for this version: {error:#}",
                info.world.as_deref().unwrap_or("watm:transport")
            )
        };
        let mut linker = Linker::new(component.engine());
        bindings::Module::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)
            .map_err(mismatch)?;
        wasi::add_to_linker(&mut linker).map_err(mismatch)?;
        let pre = linker.instantiate_pre(component).map_err(mismatch)?;
        Ok(Prepared {
            endpoint: bindings::ModuleIndices::new(&pre).map_err(mismatch)?,
            optional: optional::Indices::of(&pre),
            pre,
        })
    }
}

/// Fails if the component does not fit this host.
pub fn check_linked(module: &Module) -> Result<(), Error> {
    module.linked(Prepared::new).map(drop)
}

/// The state of one instance.
pub struct State {
    table: ResourceTable,
    /// The memory that the host charges for the objects in the table.
    objects: Charge,
    hub: Arc<Hub>,
    ports: Arc<Vec<(String, Port)>>,
    /// The instance's number among those behind the same sockets.
    generation: u32,
    mailboxes: Arc<Mailboxes>,
    /// The sockets that it has taken, by protocol and label.
    taken: BTreeMap<(Protocol, String), Arc<Token>>,
    ready: Arc<ReadyList>,
    wakers: WakeBatch,
    /// True if anything was read or written since the last check.
    moved: bool,
    /// The interval between calls that have little to do; zero does not delay them.
    coalescing: Duration,
    /// Set before a failed instance is dropped: its flows are reset, not ended.
    failed: Arc<AtomicBool>,
    cpu: CpuMeter,
    limiter: Limiter,
    /// The module's share of a core.
    cpu_quota: CpuQuota,
    /// The most flows open at once, those of earlier generations included.
    flows: usize,
    logger: Logger,
    /// The policy of the module's connections, if it may make any.
    access: Option<Arc<Access>>,
    /// The runtime of connectors, unless a dial names another.
    home: Option<Handle>,
    /// The `dial` in progress.
    dialling: Option<Dialling>,
    /// The dialled streams that still wait for an answer, by their handles.
    awaited: BTreeMap<u32, AnswerReporter>,
    host_crypto: bool,
    keys: usize,
    private_keys: Keys,
    /// The capture, if the user wants copies.
    capture: Option<Capture>,
    /// True if the module has asked for its captures since they were last set.
    capture_known: bool,
    /// The tape, while the instance is recorded or replayed.
    tape: Option<Tape>,
}

impl State {
    /// Reserves a place for one more flow. `None` if the limit of the server or that of the module
    /// is reached.
    fn flow_permit(&self) -> Option<Permit> {
        let flows = &self.hub.flows;
        (flows.open() < self.flows)
            .then(|| flows.permit())
            .flatten()
    }

    /// Returns a token for one more handle. Tokens of dropped handles are kept until the call ends.
    /// A call that makes more of them than there are handles fails with
    /// [`ErrorCode::LimitReached`].
    fn token(&self, value: u64) -> Result<Arc<Token>, ErrorCode> {
        /// Spare tokens, for a module that may have few handles and uses them one after another.
        const MORE: usize = 1024;
        if self.ready.len() >= self.hub.limits.handles.saturating_add(MORE) {
            return Err(ErrorCode::LimitReached);
        }
        Ok(Token::new(value, &self.ready))
    }

    /// Gives the guest a handle of `value`. Fails with [`ErrorCode::LimitReached`].
    fn keep<T: HostObject>(&mut self, value: T) -> Result<Resource<T>, Failure> {
        let bytes = HANDLE_BYTES + value.bytes();
        self.objects.add(bytes)?;
        let handle = self.table.push(value);
        Ok(handle.inspect_err(|_| self.objects.sub(bytes))?)
    }

    /// Removes a handle that the guest has dropped.
    fn release<T: HostObject>(&mut self, handle: Resource<T>) -> Result<T, Failure> {
        let value = self.table.delete(handle)?;
        self.objects.sub(HANDLE_BYTES + value.bytes());
        Ok(value)
    }
}

/// An object that a guest may have handles of.
trait HostObject: Send + 'static {
    /// Returns the memory that the host keeps for it, in bytes. The same for as long as it lives.
    fn bytes(&self) -> usize;
}

/// The memory of an entry in the table, and of a token, in bytes.
const HANDLE_BYTES: usize = 192;

/// The failure of an import: an error code for the guest, or a reason to stop it.
pub enum Failure {
    /// An error code, which the guest gets.
    Code(types::ErrorCode),
    /// A trap, which ends the instance.
    Trap(wasmtime::Error),
}

impl Failure {
    /// Returns the trap for imports that have no error code for a failure.
    fn into_trap(self) -> wasmtime::Error {
        match self {
            Failure::Code(code) => wasmtime::Error::msg(crate::ErrorCode::from(code).to_string()),
            Failure::Trap(error) => error,
        }
    }
}

impl From<crate::ErrorCode> for Failure {
    fn from(code: crate::ErrorCode) -> Failure {
        Failure::Code(code.into())
    }
}

/// A handle that the table does not know cannot come from the guest, because wasmtime checks those.
/// It is a mistake of the host, and costs the instance.
impl From<wasmtime::component::ResourceTableError> for Failure {
    fn from(error: wasmtime::component::ResourceTableError) -> Failure {
        match error {
            wasmtime::component::ResourceTableError::Full => {
                Failure::Code(types::ErrorCode::LimitReached)
            }
            other => Failure::Trap(other.into()),
        }
    }
}

impl types::Host for State {
    fn convert_error_code(&mut self, failure: Failure) -> wasmtime::Result<types::ErrorCode> {
        match failure {
            Failure::Code(code) => Ok(code),
            Failure::Trap(error) => Err(error),
        }
    }
}
