//! The settings of bad networks. `words` reads them, `lane` follows them.

use std::net::IpAddr;
use std::time::Duration;

use super::Way;

/// A bad network for some packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The name of the peer; `None`: every peer.
    pub peer: Option<String>,
    /// The hosts at either end of the packet; `None`: all.
    pub host: Option<Hosts>,
    /// The direction; `None`: both.
    pub way: Option<Way>,
    /// The seed of its chances; `None`: the stack's.
    pub seed: Option<u64>,
    /// The way that the packets take.
    pub path: Path,
}

impl Rule {
    pub(super) fn concerns(&self, way: Way) -> bool {
        self.way.is_none_or(|wanted| wanted == way)
    }
}

/// A network, and a port if one is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// An address of the network.
    pub address: IpAddr,
    /// The length of its prefix, in bits.
    pub prefix: u8,
    /// The port; `None`: all, and protocols without ports.
    pub port: Option<u16>,
}

impl Hosts {
    pub(super) fn contains(&self, (address, port): (IpAddr, Option<u16>)) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, true),
            IpAddr::V6(address) => (u128::from(address), false),
        };
        let ((own, is_v4), (other, other_is_v4)) = (bits(self.address), bits(address));
        let mask = match self.prefix {
            0 => 0,
            prefix => u128::MAX << (128 - u32::from(prefix)),
        };
        is_v4 == other_is_v4
            && own & mask == other & mask
            && self.port.is_none_or(|wanted| port == Some(wanted))
    }
}

/// The shape of the jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Evenly within the jitter around the delay.
    Uniform,
    /// A normal distribution, with the jitter as its standard deviation.
    Normal,
}

/// The queue in front of a link with a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aqm {
    /// Drops what arrives at a full queue.
    DropTail,
    /// Also drops packets that have waited too long (RFC 8289).
    Codel,
}

/// The bad times of the Gilbert-Elliott model, in which packets are lost more often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// The chance at a packet that bad times begin.
    pub enter: f64,
    /// The chance at a packet that bad times end.
    pub leave: f64,
    /// The chance of loss during bad times.
    pub loss: f64,
}

/// The properties of a way through the network. Chances are from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The mean delay.
    pub delay: Duration,
    /// The spread of the delay. Packets overtake each other by it.
    pub jitter: Duration,
    /// The shape of the jitter.
    pub distribution: Distribution,
    /// The correlation of a packet's jitter with that of the packet before, from 0 to below 1.
    pub correlation: f64,
    /// The chance of loss, in good times if there are bursts.
    pub loss: f64,
    /// Bad times.
    pub burst: Option<Burst>,
    /// The chance that a packet skips the delay, and so overtakes others.
    pub reorder: f64,
    /// The chance that a packet arrives twice.
    pub duplicate: f64,
    /// The chance that one bit of a packet flips.
    pub corrupt: f64,
    /// The rate of the link in bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// The most packets in the queue of the link.
    pub queue: usize,
    /// The management of the queue.
    pub aqm: Aqm,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            distribution: Distribution::Uniform,
            correlation: 0.0,
            loss: 0.0,
            burst: None,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            rate: None,
            queue: 100,
            aqm: Aqm::DropTail,
        }
    }
}
