//! The limits and timeouts of the stack. Its owner, such as the WireGuard transport, sets them.

use std::time::Duration;

/// A congestion control algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406). A few losses without a queue do not shrink its
    /// window.
    #[default]
    Cubic,
    /// BBRv3 (draft-ietf-ccwg-bbr-06). It measures the path's bandwidth, and paces at it, instead
    /// of growing its window until segments are lost.
    Bbr,
}

/// The limits of a [`Netstack`](crate::Netstack).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The largest IP packet sent to a peer, in bytes. At least 1280, the least MTU of an IPv6 link
    /// (RFC 8200 section 5); smaller values are raised to that. Default 1420: 1500 of Ethernet less
    /// 80 of IPv6, UDP and WireGuard.
    pub mtu: usize,
    /// The time without a datagram in either direction after which a UDP flow ends. Default 60 s:
    /// longer than DNS and QUIC handshakes need, short enough for 4-tuples to be recycled.
    pub udp_idle_timeout: Duration,
    /// The most flows, TCP and UDP together. Default 16384: a browser opens some hundred, so this
    /// serves dozens of people, in about 30 MiB while the flows are idle. At most three quarters
    /// can be TCP flows of one peer: the rest is for the others. Beyond the limit, a new flow
    /// replaces a UDP flow: of a peer that has more than a quarter of all flows in UDP, or else of
    /// any.
    pub max_flows: usize,
    /// The most bytes of TCP buffers that hold data. Default 64 MiB: sixty-four flows with a full
    /// window of 1 MiB each, and a quarter of the memory that a module gets.
    pub buffer_budget: usize,
    /// The congestion control of TCP connections opened from now on.
    pub congestion: Algorithm,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu: 1420,
            udp_idle_timeout: Duration::from_secs(60),
            max_flows: 16384,
            buffer_budget: 64 << 20,
            congestion: Algorithm::default(),
        }
    }
}

impl Config {
    /// The most TCP flows of one peer.
    pub(crate) fn max_tcp_of_a_peer(&self) -> usize {
        self.max_flows - self.max_flows / 4
    }

    /// The UDP flows that one peer may keep when others need room.
    pub(crate) fn udp_share_of_a_peer(&self) -> usize {
        self.max_flows / 4
    }

    /// The same configuration with an MTU that IP allows.
    pub(crate) fn checked(mut self) -> Self {
        self.mtu = self.mtu.clamp(1280, 65535);
        self
    }
}
