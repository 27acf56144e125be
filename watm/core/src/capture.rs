//! Captures for debugging: `wit/capture.wit`.
//!
//! The shell that links the transport to its host sets the provider once for the thread, as with
//! [`crypto`](crate::crypto). No provider is set natively and in WATER modules.

use std::cell::Cell;

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received from the peer.
    FromPeer,
    /// Sent to the peer.
    ToPeer,
}

/// Receives copies of packets and of secrets.
pub trait Capture {
    /// Returns true if the user enabled [`packet`](Self::packet)s.
    fn wants_packets(&self) -> bool;

    /// Returns true if the user enabled [`secret`](Self::secret)s.
    fn wants_secrets(&self) -> bool;

    /// Captures an IP packet in the tunnel of `peer`, the peer's name in the status.
    fn packet(&self, peer: &str, direction: Direction, packet: &[u8]);

    /// Captures lines of a key log: at most 1 KiB of printable ASCII and line ends.
    fn secret(&self, lines: &str);
}

/// Captures an IP packet of `peer`, if the user enabled packets.
pub fn copy_packet(capture: Option<&dyn Capture>, peer: &str, direction: Direction, packet: &[u8]) {
    if let Some(capture) = capture
        && capture.wants_packets()
    {
        capture.packet(peer, direction, packet);
    }
}

/// Returns the captures that the user enabled, or `None` if there are none.
pub type Provider = fn() -> Option<Box<dyn Capture>>;

thread_local! {
    static PROVIDER: Cell<Option<Provider>> = const { Cell::new(None) };
}

/// Set the provider for the transports that this thread starts from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.set(provider);
}

/// Returns the enabled captures. Transports call it in
/// [`Transport::start`](crate::Transport::start), and in
/// [`Transport::reconfigure`](crate::Transport::reconfigure) to let the user begin and end captures.
/// Normally it returns `None`: no capture is enabled.
pub fn capture() -> Option<Box<dyn Capture>> {
    PROVIDER.get()?()
}
