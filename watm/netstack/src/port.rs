//! Ephemeral ports for dialled flows.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};

use crate::PeerId;
use crate::hash::Keyed;
use crate::table::Key;

/// The range of ephemeral ports (RFC 6335 section 6).
const FIRST_EPHEMERAL: u16 = 49152;
const EPHEMERAL_PORTS: u64 = 1 << 14;

/// The candidate keys of the next flow from `source` to `destination`, in the order to try. The
/// first port is unpredictable to strangers (RFC 6056 section 3.3), and differs for each flow that
/// was dialled before.
pub(crate) fn candidates(
    hash: &Keyed,
    dialled: u64,
    peer: PeerId,
    source: IpAddr,
    destination: SocketAddr,
) -> impl Iterator<Item = Key> {
    let first = hash.hash_one((peer, source, destination, dialled));
    (0..EPHEMERAL_PORTS)
        .map(move |step| FIRST_EPHEMERAL + (first.wrapping_add(step) % EPHEMERAL_PORTS) as u16)
        .map(move |port| Key {
            peer,
            // A flow's source is the peer's end, whichever end opened it.
            source: destination,
            destination: SocketAddr::new(source, port),
        })
}
