//! Checks that need the whole configuration. Used by `json` and `wg`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{AllowedIps, Network, PeerConfig};
use crate::generations::PEER_BITS;

/// The most peers: half of the numbers that a session's index has for them, so that one
/// configuration can replace another of the same size.
pub const MAX_PEERS: usize = 1 << (PEER_BITS - 1);

/// An error in one peer: its position, the field and the reason.
pub struct PeerError {
    pub position: usize,
    pub field: &'static str,
    pub why: String,
}

/// Checks the peers against each other and against the server's key. `name` describes the peer at a
/// position, such as `the peer in line 7`.
pub fn peers(
    own_key: &[u8; 32],
    peers: &[PeerConfig],
    name: impl Fn(usize) -> String,
) -> Result<(), PeerError> {
    let mut keys: BTreeMap<&[u8; 32], usize> = BTreeMap::new();
    let mut owners: BTreeMap<(IpAddr, u8), usize> = BTreeMap::new();
    for (position, peer) in peers.iter().enumerate() {
        if position == MAX_PEERS {
            return Err(PeerError {
                position,
                field: "PublicKey",
                why: format!(
                    "too many peers: a server has at most {MAX_PEERS}; start another server"
                ),
            });
        }
        let error = |field, why| PeerError {
            position,
            field,
            why,
        };
        let key = peer.public_key.as_bytes();
        if key == own_key {
            return Err(error(
                "PublicKey",
                "this is our own public key; write the client's".to_owned(),
            ));
        }
        if let Some(other) = keys.insert(key, position) {
            return Err(error(
                "PublicKey",
                format!(
                    "already used by {}; give each peer a key of its own",
                    name(other)
                ),
            ));
        }
        if let AllowedIps::Networks(networks) = &peer.allowed_ips {
            for network in networks {
                let owner = owners.insert((masked(network), network.prefix), position);
                if let Some(other) = owner.filter(|&other| other != position) {
                    return Err(error(
                        "AllowedIPs",
                        format!(
                            "{network} already belongs to {}; give each peer addresses of its own",
                            name(other)
                        ),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The address with the bits beyond the prefix zero.
fn masked(network: &Network) -> IpAddr {
    match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(network.prefix))
                .unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(network.prefix))
                .unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}
