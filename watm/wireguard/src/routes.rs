//! The owners of inner addresses. Used by `dial` and `peers`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use ip_network::IpNetwork;
use ip_network_table::IpNetworkTable;
use watm_netstack::PeerId;

use crate::config::{AllowedIps, Network, PeerConfig};

/// The peers' AllowedIPs without their DisallowedIPs.
///
/// An address belongs to the peer with the longest matching prefix, among the peers that do not
/// exclude it. An exclusion thus takes nothing from another peer, as the many longer prefixes of a
/// complement would.
pub struct Routes {
    allowed: IpNetworkTable<PeerId>,
    /// The exclusions, for the peers that have any.
    disallowed: BTreeMap<PeerId, IpNetworkTable<()>>,
    /// The address that was looked for last, and its owner: packets of a transfer have one address.
    last: Cell<Option<(IpAddr, Option<PeerId>)>>,
}

impl Routes {
    /// Makes an empty table.
    pub fn new() -> Self {
        Routes {
            allowed: IpNetworkTable::new(),
            disallowed: BTreeMap::new(),
            last: Cell::new(None),
        }
    }

    /// Add the networks of a peer's configuration.
    pub fn add(&mut self, id: PeerId, config: &PeerConfig) {
        self.last.set(None);
        if let AllowedIps::Networks(networks) = &config.allowed_ips {
            for network in networks.iter().filter_map(prefix) {
                self.allowed.insert(network, id);
            }
        }
        for network in config.disallowed_ips.iter().filter_map(prefix) {
            let of_peer = self.disallowed.entry(id);
            let table = of_peer.or_default();
            table.insert(network, ());
        }
    }

    /// The peer that owns this inner address.
    pub fn find(&self, address: IpAddr) -> Option<PeerId> {
        if let Some((last, owner)) = self.last.get()
            && last == address
        {
            return owner;
        }
        let owner = self.look_up(address);
        self.last.set(Some((address, owner)));
        owner
    }

    fn look_up(&self, address: IpAddr) -> Option<PeerId> {
        let (_, &longest) = self.allowed.longest_match(address)?;
        if !self.excludes(longest, address) {
            return Some(longest);
        }
        let matches = self.allowed.matches(address);
        matches
            .filter(|(_, id)| !self.excludes(**id, address))
            .max_by_key(|(network, _)| network.netmask())
            .map(|(_, &id)| id)
    }

    fn excludes(&self, id: PeerId, address: IpAddr) -> bool {
        let table = self.disallowed.get(&id);
        table.is_some_and(|table| table.longest_match(address).is_some())
    }
}

/// The source address of a connection to `target`: the address in the smallest network that
/// contains it, as a system chooses on one interface, or the first of its family.
pub fn source(ours: &[Network], target: IpAddr) -> Option<IpAddr> {
    let has_target = |network: &&Network| prefix(network).is_some_and(|it| it.contains(target));
    let of_its_family = |network: &&Network| network.address.is_ipv4() == target.is_ipv4();
    // Prefer the first of equally long prefixes.
    let nearest = ours
        .iter()
        .rev()
        .filter(has_target)
        .max_by_key(|network| network.prefix)
        .or_else(|| ours.iter().find(of_its_family));
    nearest.map(|network| network.address)
}

fn prefix(network: &Network) -> Option<IpNetwork> {
    IpNetwork::new_truncate(network.address, network.prefix).ok()
}
