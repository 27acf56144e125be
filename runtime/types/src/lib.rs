//! The vocabulary of the host's crates: addresses, destinations, patterns, roles, errors, and the
//! parts of a status.
//!
//! It does no input or output. Programs use its types through `watm-runtime`.

mod address;
mod code;
mod error;
mod flow_info;
pub mod hex;
mod module_kind;
mod pattern;
mod role;
mod status;
mod steer;
mod text;
mod usage;

pub use address::{Destination, Family, Network, Target};
pub use code::ErrorCode;
pub use error::Error;
pub use flow_info::FlowInfo;
pub use module_kind::ModuleKind;
pub use pattern::{ConnectPattern, InvalidPattern, MAX_PATTERN_BYTES};
pub use role::Role;
pub use status::{ClientConfig, GenerationStatus, PeerStatus, Phase};
pub use steer::Steer;
pub use text::{cut, one_line, printable};
pub use usage::{Used, UsedDestination};
