//! Types for flows whose application is a socket of the host's, shared by both kinds of flows.

use std::fmt;

/// Counts the bytes that a joined flow has moved. Called on the thread of the module or of the
/// caller, and must not block it.
pub trait Meter: Send + Sync + 'static {
    /// Counts bytes that came from the module.
    fn receive(&self, bytes: usize);

    /// Counts bytes that went to the module.
    fn send(&self, bytes: usize);
}

/// A meter that does not count.
impl Meter for () {
    fn receive(&self, _: usize) {}

    fn send(&self, _: usize) {}
}

/// The side of a joined flow that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinError {
    /// The module's side.
    Flow,
    /// The socket's side.
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
