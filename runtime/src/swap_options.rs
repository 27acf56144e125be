//! Options of a swap. Applications give them to `server`, and `driver` follows them.

use std::time::Duration;

use crate::Keys;

/// Options of a swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapOptions {
    /// The configuration of the new module. Default: the one in force.
    pub config: Option<Vec<u8>>,
    /// The private keys that it may sign with. Default: those in force.
    pub keys: Option<Keys>,
    /// The time that the old module has to finish its flows; then they are reset. Default: no limit.
    pub drain: Option<Duration>,
    /// The probation of the new module. If it fails in this time, the old one serves again. Default
    /// 1 s.
    pub probation: Duration,
}

impl Default for SwapOptions {
    fn default() -> SwapOptions {
        SwapOptions {
            config: None,
            keys: None,
            drain: None,
            probation: Duration::from_secs(1),
        }
    }
}
