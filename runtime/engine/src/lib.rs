//! Everything that all module hosts stand on: the compiler and its cache, modules, the
//! limits of their execution, and what a server shares with its instances.
//!
//! Programs use the types for applications through `watm-runtime`.

mod allocator;
mod cache;
pub mod cpu_meter;
pub mod cpu_quota;
mod engine;
mod executable_memory;
mod execution;
mod granted;
pub mod hub;
pub mod job;
pub mod limiter;
pub mod log;
mod module;
pub mod output;
mod rollback;
pub mod slice;
mod ticker;
mod usage;

pub use engine::{CacheDir, Engine};
pub use execution::Execution;
pub use module::{Code, Module};
pub use rollback::{Rollback, remember};
pub use ticker::Ticking;
pub use usage::{Subject, UsageRecord, note_usage};
use watm_net::Limits;
use watm_policy::LastUse;
use watm_types::{Destination, Error, ErrorCode, ModuleKind, Network, Role, Target, Used};
