//! Runs sandboxed transport modules.

mod component;
mod counters;
mod driver;
mod engine;
mod error;
mod flow;
mod hub;
mod limits;
mod module;
mod net;
mod ready;
mod server;
mod types;

pub use engine::{CacheDir, Engine, EngineConfig};
pub use error::Error;
pub use flow::{DatagramFlow, Flow, StreamFlow};
pub use limits::Limits;
pub use module::{Module, ModuleInfo, ModuleKind, inspect};
pub use server::{Server, ServerBuilder};
pub use types::{ClientConfig, Destination, ErrorCode, FlowInfo, PeerStatus, Phase, Status};
