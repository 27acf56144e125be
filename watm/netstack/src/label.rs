//! Flow labels of IPv6 (RFC 6437).

use std::hash::BuildHasher;

use crate::hash::Keyed;
use crate::table::Key;

/// The labels of flows. Nobody who does not have the secret can predict one from another
/// (section 3), and routers may spread flows by them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels {
    secret: Keyed,
}

impl Labels {
    pub(crate) fn new(secret: u64) -> Self {
        Labels {
            secret: Keyed::new(secret),
        }
    }

    /// The label of all packets to the source of this flow: 20 bits. It is 0 for IPv4, which has
    /// none, and never 0 for IPv6, where that would mean that there is none.
    pub(crate) fn of(&self, key: &Key) -> u32 {
        if key.source.is_ipv4() {
            return 0;
        }
        let label = self.secret.hash_one(key) as u32 & 0xf_ffff;
        label.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use super::*;

    fn key(ip: IpAddr, port: u16) -> Key {
        Key {
            peer: 1,
            source: SocketAddr::new(ip, port),
            destination: SocketAddr::new(ip, 443),
        }
    }

    #[test]
    fn each_flow_has_a_label_that_the_secret_decides() {
        let (labels, others) = (Labels::new(1), Labels::new(2));
        let keys = (1..=1000).map(|port| key(Ipv6Addr::LOCALHOST.into(), port));
        let found: BTreeSet<u32> = keys.clone().map(|key| labels.of(&key)).collect();
        assert!(found.len() > 990, "{}", found.len());
        assert!(found.iter().all(|label| (1..1 << 20).contains(label)));
        let alike = keys.filter(|key| labels.of(key) == others.of(key)).count();
        assert!(alike < 10, "{alike}");
        assert_eq!(labels.of(&key(Ipv4Addr::LOCALHOST.into(), 1)), 0);
    }
}
