//! The usage of modules on disk, for `watm inspect`. Servers and dialers keep it, and [`Trust`]
//! reads it.
//!
//! [`Trust`]: crate::Trust

mod keep;
mod record;

pub use keep::note_usage;
pub(crate) use keep::{Kept, Subject};
pub use record::LastUse;
