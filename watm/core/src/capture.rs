//! Copies for a user who looks for a mistake: `wit/capture.wit`.
//!
//! As with [`crypto`](crate::crypto), the provider is set once for the thread, by the shell that
//! links the transport to its host. Natively, and in modules for WATER, nobody sets one.

use std::cell::Cell;

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The peer has sent it.
    FromPeer,
    /// It is sent to the peer.
    ToPeer,
}

/// Takes copies.
pub trait Capture {
    /// Whether the user wants [`packet`](Self::packet)s.
    fn wants_packets(&self) -> bool;

    /// Whether the user wants [`secret`](Self::secret)s.
    fn wants_secrets(&self) -> bool;

    /// An IP packet in the tunnel of a peer, which has this name in the status.
    fn packet(&self, peer: &str, direction: Direction, packet: &[u8]);

    /// Lines for a key log: at most 1 KiB of printable ASCII and ends of lines.
    fn secret(&self, lines: &str);
}

/// What the user wants; `None`: nothing.
pub type Provider = fn() -> Option<Box<dyn Capture>>;

thread_local! {
    static PROVIDER: Cell<Option<Provider>> = const { Cell::new(None) };
}

/// Ask `provider` for the transports that this thread starts from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.set(provider);
}

/// To be asked in [`Transport::start`](crate::Transport::start). `None`, which is the rule: nobody
/// wants any copy.
pub fn capture() -> Option<Box<dyn Capture>> {
    PROVIDER.get()?()
}
