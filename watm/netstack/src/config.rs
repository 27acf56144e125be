use std::time::Duration;

/// What a [`Netstack`](crate::Netstack) may use, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The largest IP packet sent to a peer, in bytes. At least 1280, the least that IPv6
    /// allows a link to have (RFC 8200 section 5); smaller values are raised to that.
    /// Default 1420: 1500 of Ethernet less 80 of IPv6, UDP and WireGuard.
    pub mtu: usize,
    /// A UDP flow without a datagram in either direction for this long ends. Default 60 s:
    /// longer than DNS and QUIC handshakes need, short enough for 4-tuples to be recycled.
    pub udp_idle_timeout: Duration,
    /// Most flows, TCP and UDP together. Default 16384: a browser opens some hundred, so
    /// this serves dozens of people, in about 30 MiB while the flows are idle. Of one peer at
    /// most three quarters are TCP: the rest is for the others. If there is no more room, a new
    /// flow takes the place of a UDP flow: of a peer that has more than a quarter of all flows
    /// in UDP, or else of any.
    pub max_flows: usize,
    /// Most bytes of TCP buffers that hold data. Default 64 MiB: sixty-four flows with a
    /// full window of 1 MiB each, and a quarter of what a module is given.
    pub buffer_budget: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu: 1420,
            udp_idle_timeout: Duration::from_secs(60),
            max_flows: 16384,
            buffer_budget: 64 << 20,
        }
    }
}

impl Config {
    /// TCP flows of one peer.
    pub(crate) fn max_tcp_of_a_peer(&self) -> usize {
        self.max_flows - self.max_flows / 4
    }

    /// UDP flows of one peer that the others leave it.
    pub(crate) fn udp_share_of_a_peer(&self) -> usize {
        self.max_flows / 4
    }

    /// The same with an MTU that IP allows.
    pub(crate) fn checked(mut self) -> Self {
        self.mtu = self.mtu.clamp(1280, 65535);
        self
    }
}
