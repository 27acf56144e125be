//! Sockets and flows: everything that moves the bytes of a module, without the module.
//!
//! Data enters through [`sockets`], which a module sees as [`ports`], and leaves through [`flow`]. [`account`] charges the memory for
//! it to the module, [`quota`] bounds flows and descriptors, and [`ready`] tells who can make
//! progress. Programs use the types for applications through `watm-runtime`.

pub mod account;
pub mod connect;
pub mod counters;
pub mod flow;
mod limits;
pub mod ports;
pub mod quota;
pub mod ready;
mod refusals;
pub mod sockets;
pub mod sync;
pub mod usage;

pub use connect::{Connect, Wire};
pub use limits::Limits;
pub use refusals::log_refusal;
use watm_types::{
    Destination, Error, ErrorCode, Family, FlowInfo, ModuleKind, Network, Steer, Target, Used,
    UsedDestination,
};
