//! The settings of bad networks. `words` reads them, `lane` follows them.

use std::net::IpAddr;
use std::time::Duration;

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From a peer to this end.
    FromPeer,
    /// From this end to a peer.
    ToPeer,
}

/// A bad network for some packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The name of the peer; `None`: every peer.
    pub peer: Option<String>,
    /// The hosts at either end of the packet; `None`: all.
    pub host: Option<Hosts>,
    /// The direction; `None`: both.
    pub direction: Option<Direction>,
    /// The path that the packets take.
    pub path: Path,
}

impl Rule {
    pub(crate) fn concerns(&self, direction: Direction, peer: &str, ends: Option<Ends>) -> bool {
        self.direction.is_none_or(|wanted| wanted == direction)
            && self.peer.as_deref().is_none_or(|wanted| wanted == peer)
            && self
                .host
                .is_none_or(|host| ends.is_some_and(|ends| ends.iter().any(|end| host.has(*end))))
    }
}

/// The source and the destination of a packet, each with its port if it has one.
pub(crate) type Ends = [(IpAddr, Option<u16>); 2];

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
    pub(crate) fn has(&self, (address, port): (IpAddr, Option<u16>)) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
            IpAddr::V6(address) => u128::from(address),
        };
        let mask = match self.prefix {
            0 => 0,
            prefix => u128::MAX << (128 - u32::from(prefix)),
        };
        self.address.is_ipv4() == address.is_ipv4()
            && bits(self.address) & mask == bits(address) & mask
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

/// The management of the queue in front of a link with a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aqm {
    /// Drops packets that arrive at a full queue.
    DropTail,
    /// Also drops packets that have waited too long (RFC 8289).
    Codel,
}

/// The bad times of the Gilbert-Elliott model, in which packets are lost more often. Chances are
/// from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// The chance at a packet that bad times begin.
    pub enter: f64,
    /// The chance at a packet that bad times end.
    pub leave: f64,
    /// The chance of loss during bad times.
    pub loss: f64,
}

/// The properties of a path through the network. Chances are from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The mean delay.
    pub delay: Duration,
    /// The spread of the delay.
    pub jitter: Duration,
    /// The shape of the jitter.
    pub distribution: Distribution,
    /// The correlation of a packet's jitter with that of the packet before, from 0 to below 1.
    pub correlation: f64,
    /// The chance of loss, in good times if there are bursts.
    pub loss: f64,
    /// Bad times, which never begin if the chance is 0.
    pub burst: Burst,
    /// The chance that a packet skips the delay, and so overtakes others.
    pub reorder: f64,
    /// The chance that a packet arrives twice.
    pub duplicate: f64,
    /// The chance that one bit of a packet's payload flips.
    pub corrupt: f64,
    /// The rate of the link in bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// The most packets in the queue of the link.
    pub queue: usize,
    /// The management of the queue.
    pub aqm: Aqm,
}

impl Path {
    /// A path that changes nothing.
    pub const PERFECT: Path = Path {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        distribution: Distribution::Uniform,
        correlation: 0.0,
        loss: 0.0,
        burst: Burst {
            enter: 0.0,
            leave: 1.0,
            loss: 1.0,
        },
        reorder: 0.0,
        duplicate: 0.0,
        corrupt: 0.0,
        rate: None,
        queue: 100,
        aqm: Aqm::DropTail,
    };

    /// Returns true if packets may wait.
    pub(crate) fn holds(&self) -> bool {
        self.rate.is_some() || !self.delay.is_zero() || !self.jitter.is_zero()
    }
}
