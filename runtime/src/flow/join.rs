//! Flows whose application is a socket of the host's.

use std::fmt;

/// Is told what a joined flow moves, when it has: on the thread of the module or of the caller,
/// which it must not hold up.
pub trait Meter: Send + Sync + 'static {
    /// So many bytes came from the module.
    fn receive(&self, bytes: usize);

    /// So many went to it.
    fn send(&self, bytes: usize);
}

/// Nobody is told.
impl Meter for () {
    fn receive(&self, _: usize) {}

    fn send(&self, _: usize) {}
}

/// Which side of a joined flow failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinError {
    /// The module's.
    Flow,
    /// The socket's.
    Upstream,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Flow => "the module's side was reset",
            JoinError::Upstream => "the other side was reset",
        })
    }
}

impl std::error::Error for JoinError {}
