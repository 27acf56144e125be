//! Policy: what a module is, and what it may have.
//!
//! [`inspection`] reads a file before it is compiled, [`trust`] verifies its seal, [`grant`] limits
//! it to what the seal and the user allow, and [`access`] applies that to each connection. Programs
//! use the types for applications through `watm-runtime`.

pub mod access;
pub mod capture;
pub mod grant;
pub mod inspection;
pub mod keys;
mod last_use;
pub mod reach;
mod resolve;
pub mod trust;
pub mod water_abi;

pub use capture::Capture;
pub use grant::Grants;
pub use keys::{Keys, Signer};
pub use last_use::LastUse;
pub use reach::Reach;
pub use trust::{BuiltIn, LoadOptions, Trust};
use watm_net::{Limits, log_refusal};
use watm_types::{Destination, Error, ModuleKind, Network, Role, Target, Used};
