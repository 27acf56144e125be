//! A network stack in user space for many peers, without IO of its own.
//!
//! Inner IP packets go in; what they carry is offered to the application as flows through
//! [`Host`], for any destination address and port. What the application answers comes out
//! as IP packets for the peer that opened the flow.
//!
//! # The run loop
//!
//! 1. Hand every packet of a batch to [`Netstack::handle_packet`], every ready token that
//!    the stack [owns](Netstack::owns) to [`Netstack::handle_ready`], and call
//!    [`Netstack::handle_timeouts`] when [`Netstack::poll_timeout`] has come.
//! 2. Call [`Netstack::flush`] once: only then do acknowledgements, data and datagrams of
//!    the batch leave.
//! 3. Ask [`Netstack::poll_timeout`] when to come back.

mod config;

use std::net::SocketAddr;
use std::rc::Rc;

pub use config::Config;
use watm_core::{Host, Instant, Token};

/// A peer's number, chosen by the owner of the stack and never reused for another peer
/// while the stack has flows of the first.
pub type PeerId = u32;

/// Where a packet comes from, authenticated by the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The peer.
    pub peer: PeerId,
    /// The name that the application sees in [`FlowInfo::peer`](watm_core::FlowInfo::peer).
    pub name: Rc<str>,
    /// The outer addresses: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
}

/// Takes the IP packets that the stack sends.
pub trait PacketSink {
    /// Send an IP packet to this peer.
    fn send(&mut self, peer: PeerId, packet: &[u8]);
}

/// The stack. See the crate's page for the run loop.
pub struct Netstack {
    config: Config,
}

impl Netstack {
    /// A stack without flows. `seed` makes sequence numbers and hash keys; it must be
    /// unpredictable to peers.
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        let _ = (seed, now);
        Netstack { config }
    }

    /// Replace the configuration, for flows opened from now on and the timeouts of all.
    pub fn reconfigure(&mut self, config: Config) {
        self.config = config;
    }

    /// Take an inner IP packet from an authenticated peer, whose source address the caller
    /// has checked.
    pub fn handle_packet(
        &mut self,
        origin: &Origin,
        packet: &[u8],
        host: &mut dyn Host,
        sink: &mut dyn PacketSink,
    ) {
        let _ = (origin, packet, host, sink);
    }

    /// Whether the stack chose this token. Its tokens, and no others, have the top bit set.
    pub fn owns(&self, token: Token) -> bool {
        token >> 63 == 1
    }

    /// Make progress on the flow with this token. Tokens of flows that are gone are ignored.
    pub fn handle_ready(&mut self, token: Token, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let _ = (token, host, sink);
    }

    /// Do what is due by [`Host::now`].
    pub fn handle_timeouts(&mut self, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let _ = (host, sink);
    }

    /// Send what the calls since the last flush have left to be sent.
    pub fn flush(&mut self, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let _ = (host, sink);
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) wants to be called. Any other call
    /// may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Reset the flows of a peer that is no longer served.
    pub fn remove_peer(&mut self, peer: PeerId, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let _ = (peer, host, sink);
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        0
    }

    /// What happened so far, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        std::iter::empty()
    }
}
