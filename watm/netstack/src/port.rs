//! Ports for flows from here.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};

use crate::PeerId;
use crate::hash::Keyed;
use crate::table::Key;

/// RFC 6335 section 6.
const FIRST_EPHEMERAL: u16 = 49152;
const EPHEMERAL_PORTS: u64 = 1 << 14;

/// What the next flow from `source` to `destination` could be, in the order to be tried. Begins at
/// a port that strangers cannot guess (RFC 6056 section 3.3), another one for each flow that was
/// dialled before.
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
            // A flow's source is the peer's end, whoever opened it.
            source: destination,
            destination: SocketAddr::new(source, port),
        })
}
