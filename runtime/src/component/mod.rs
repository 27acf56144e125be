//! Components for `wit/world.wit`: an instance, and what it imports, a file an interface.

mod bindings;
mod capture;
mod carry;
mod connect;
mod convert;
mod cpu;
mod crypto;
mod dialling;
mod flows;
mod generations;
mod instance;
pub(crate) mod log;
mod names;
mod signing;
mod sockets;
mod tape;
mod wasi;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};

pub(crate) use dialling::{Addresses, Attempts, Begun, Dial};
pub(crate) use instance::{Grants, Instance, StartError, Trap, Wakeup};
pub(crate) use tape::{Player, Stop, Tape};

use crate::account::Charge;
use crate::flow::FlowPermit;
use crate::hub::Hub;
use crate::keys::Keys;
use crate::limiter::Limiter;
use crate::log::Logger;
use crate::net::{Port, Protocol};
use crate::post::Post;
use crate::ready::{ReadyList, Token, WakeBatch};
use crate::roles::Access;
use crate::share::Share;
use crate::{Capture, ErrorCode, ModuleInfo, Network};
use bindings::watm::transport::types;
use cpu::CpuMeter;
use dialling::{Answer, Dialling};

/// The types of `wit/`.
pub(crate) mod wit {
    pub(crate) use super::bindings::exports::watm::transport::endpoint;
    pub(crate) use super::bindings::watm::transport::{
        crypto, flows, generations, log, sockets, types,
    };
}

/// A module with its imports resolved; what is left for a start takes microseconds.
pub(crate) struct Prepared {
    pre: bindings::ModulePre<State>,
    /// What it can listen on, by what it imports.
    pub(crate) sockets: Vec<Network>,
}

impl Prepared {
    pub(crate) fn new(
        engine: &wasmtime::Engine,
        component: &Component,
        info: &ModuleInfo,
    ) -> Result<Prepared, String> {
        let mismatch = |error: wasmtime::Error| {
            format!(
                "does not fit {}: {error:#}",
                info.world.as_deref().unwrap_or("watm:transport")
            )
        };
        let mut linker = Linker::new(engine);
        bindings::Module::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)
            .map_err(mismatch)?;
        wasi::add_to_linker(&mut linker).map_err(mismatch)?;
        let pre = linker.instantiate_pre(component).map_err(mismatch)?;
        Ok(Prepared {
            pre: bindings::ModulePre::new(pre).map_err(mismatch)?,
            sockets: sockets(engine, component),
        })
    }
}

fn sockets(engine: &wasmtime::Engine, component: &Component) -> Vec<Network> {
    let component = component.component_type();
    let mut functions = Vec::new();
    for (name, import) in component.imports(engine) {
        if let ComponentItem::ComponentInstance(instance) = &import.ty
            && name.starts_with("watm:transport/sockets@")
        {
            functions.extend(instance.exports(engine).map(|(name, _)| name.to_owned()));
        }
    }
    [
        ("[static]datagram-socket.open", Network::Udp),
        ("[static]listener.open", Network::Tcp),
    ]
    .into_iter()
    .filter(|(open, _)| functions.iter().any(|function| function == open))
    .map(|(_, network)| network)
    .collect()
}

/// What one instance works on.
pub(crate) struct State {
    table: ResourceTable,
    /// What the host keeps of what is in it.
    objects: Charge,
    hub: Arc<Hub>,
    ports: Arc<Vec<(String, Port)>>,
    /// Its number among those behind the same sockets.
    generation: u32,
    post: Arc<Post>,
    /// The sockets that it has taken, by what they are for and label.
    taken: BTreeMap<(Protocol, String), Arc<Token>>,
    ready: Arc<ReadyList>,
    wakers: WakeBatch,
    /// Whether anything was read or written, since that was asked last.
    moved: bool,
    /// How far calls are to be apart that have little to do; zero: it does not matter.
    coalescing: Duration,
    /// Set before an instance that failed is dropped: its flows are reset, not ended.
    failed: Arc<AtomicBool>,
    cpu: CpuMeter,
    limiter: Limiter,
    /// Of a core.
    share: Share,
    /// Open at once, those of the generations before it too.
    flows: usize,
    logger: Logger,
    /// Where the module may go, if anywhere.
    access: Option<Arc<Access>>,
    /// Where connectors run, unless a dial says otherwise.
    home: Option<Handle>,
    /// The `dial` under way.
    dialling: Option<Dialling>,
    /// Streams that were dialled and that somebody has yet to answer, by their handles.
    awaited: BTreeMap<u32, Answer>,
    host_crypto: bool,
    keys: usize,
    private_keys: Keys,
    /// For who wants copies.
    capture: Option<Capture>,
    /// A recording that is made or replayed.
    tape: Option<Tape>,
}

impl State {
    /// For one more flow; `None`: the server's limit is reached, or that of the module.
    fn flow_permit(&self) -> Option<FlowPermit> {
        let flows = &self.hub.flows;
        (flows.open() < self.flows)
            .then(|| flows.permit())
            .flatten()
    }

    /// A token for one more handle. Those whose handles are gone are kept until the call ends, and
    /// a call that makes more of them than there are handles fails with
    /// [`ErrorCode::LimitReached`].
    fn token(&self, value: u64) -> Result<Arc<Token>, ErrorCode> {
        /// For a module that may have few handles, and has others one after another.
        const MORE: usize = 1024;
        if self.ready.len() >= self.hub.limits.handles.saturating_add(MORE) {
            return Err(ErrorCode::LimitReached);
        }
        Ok(Token::new(value, &self.ready))
    }

    /// Give the guest a handle of this; fails with [`ErrorCode::LimitReached`].
    fn keep<T: Kept>(&mut self, value: T) -> Result<Resource<T>, Failure> {
        let bytes = HANDLE_BYTES + value.bytes();
        self.objects.add(bytes)?;
        let handle = self.table.push(value);
        Ok(handle.inspect_err(|_| self.objects.sub(bytes))?)
    }

    /// The guest has let go of a handle.
    fn let_go<T: Kept>(&mut self, handle: Resource<T>) -> Result<T, Failure> {
        let value = self.table.delete(handle)?;
        self.objects.sub(HANDLE_BYTES + value.bytes());
        Ok(value)
    }
}

/// What a guest may have handles of.
trait Kept: Send + 'static {
    /// What the host keeps of it, in bytes. The same for as long as it lives.
    fn bytes(&self) -> usize;
}

/// An entry of the table, and a token.
const HANDLE_BYTES: usize = 192;

/// Why an import did not do what it was asked to: an answer for the guest, or a reason
/// to stop it.
pub enum Failure {
    Code(types::ErrorCode),
    Trap(wasmtime::Error),
}

impl Failure {
    /// For imports that have no answer for a failure.
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

/// A handle that the table does not know cannot come from the guest: the runtime checks
/// those. So it is the host's mistake, and costs the instance.
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
