//! WATER modules: core modules that serve one connection each. `roles` and `driver` run them.
//!
//! WATER (<https://github.com/refraction-networking/water>) has a module block: it gets descriptors
//! of sockets, and reads, writes and polls them with WASI preview 1 until the connection ends. Here
//! each connection has an instance of its own, made from memory in microseconds, on a stack of its
//! own. A call that has to wait suspends the stack, and the thread continues with other tasks. No
//! descriptor of a guest is one of this process: a number stands for a socket, for the application's
//! flow, or for the control pipe.
//!
//! The life of a connection, the same for all versions and roles:
//!
//! 1. Instantiate; call `_start` if there is one (languages with a runtime set it up there), else
//!    `_initialize` if there is one.
//! 2. Call the init function. A module of v1 finds its configuration in `/conf/watm.cfg`, one of v0
//!    asks for it by `pull_config`.
//! 3. Hand over the application's stream (not to a relay), and call the role's function. The module
//!    asks for its connections there, and does its handshake.
//! 4. Hand over the control pipe.
//! 5. Call the worker, in a task of its own. A listener's application gets the connection when the
//!    module first reads, writes or polls the application's stream: before that it is in the
//!    handshake with its client, in whichever function. The connection ends when the worker traps or
//!    returns, with any result: the module's data is delivered, and then the end, or an error that
//!    names the cause. A client whose connection fails before either end has ended sees a reset,
//!    unless the module has shut its stream (`sock_shutdown`) after its last data.
//! 6. When the application closes the connection, the module reads the remaining data, then a byte
//!    on the control pipe, and then it is dropped. Each of the two waits ends after a
//!    [`Limits::close_grace`](crate::Limits::close_grace) in which the module moved no bytes, and
//!    after five at the latest. When a client resets its connection and the module continues, or a
//!    relay is closed, each wait takes one at most.
//!
//! A module that replaces another is on probation: when an instance of it traps, or fails in a way
//! that its connections do not explain, it is rolled back, and the former module makes new
//! connections again. A listener or a relay that refuses input from a client does not count as
//! failed: otherwise strangers would decide which module runs.

mod connections;
mod end;
mod env;
mod errno;
mod fds;
mod guest;
mod instance;
mod outside;
mod preview1;
mod runner;
mod slot;
mod state;
mod worker;

use wasmtime::{InstancePre, Linker};
use watm_engine::{Code, Module};
use watm_net::Limits;
use watm_policy::water_abi::Abi;
use watm_types::{Destination, Error, ErrorCode, FlowInfo, Role, Target};

pub use connections::Connections;
pub use runner::WaterRunner;
pub use slot::{Serving, Slot};

use state::State;

/// A module with its imports resolved. Instantiating it for a connection takes microseconds.
pub struct Prepared {
    pre: InstancePre<State>,
    abi: &'static Abi,
}

impl Prepared {
    fn new(module: &Module) -> Result<Prepared, String> {
        let Code::Water(code, abi) = module.code() else {
            return Err("is no WATER module".to_owned());
        };
        let mismatch = |error: wasmtime::Error| format!("does not fit WATER: {error:#}");
        let mut linker = Linker::new(code.engine());
        preview1::add_to_linker(&mut linker).map_err(mismatch)?;
        env::add_to_linker(&mut linker, abi.version).map_err(mismatch)?;
        let pre = linker.instantiate_pre(code).map_err(mismatch)?;
        Ok(Prepared { pre, abi })
    }
}

/// Fails if the module does not fit this host.
pub fn check_linked(module: &Module) -> Result<(), Error> {
    module.linked(Prepared::new).map(drop)
}
