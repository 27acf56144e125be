//! Several workers of one server: which of them has a peer, and how its datagrams get there. Used
//! throughout the crate.
//!
//! A host may run several instances on one address, its workers. Each peer has a *home*, the worker
//! that alone has its sessions and flows, and that calls it. The key of the peer decides: all workers
//! know all peers, and agree.
//!
//! - Responses, cookies and data name a session by its index. The upper eight bits of an index,
//!   modulo the number of workers, are the number of the worker that made it. The host takes these
//!   datagrams there, wherever the peer is (`steer` in [`ABOUT`](crate::ABOUT)).
//! - An initiation names no session. It comes to any worker, to the same one for each address, which
//!   applies the limits on handshakes (`admission`): the sender has its cookies from there. It then
//!   passes the datagram to the home. Only the home accepts it, so that no worker takes what another
//!   has seen before (`floor`).

use watm_core::ConfigError;

/// The values of the upper eight bits of an index.
const TAGS: u32 = 256;

/// The most workers. It leaves four values for the generations of each: see [`Place::tag`].
const MOST: u32 = 64;

/// The number of this worker, and of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    number: u32,
    count: u32,
}

impl Place {
    /// Takes what the host says. Fails if there are too many workers.
    pub fn new((number, count): (u32, u32)) -> Result<Place, ConfigError> {
        match count <= MOST && number < count {
            true => Ok(Place { number, count }),
            false => Err(ConfigError::Other(format!(
                "worker {number} of {count}; WireGuard runs on at most {MOST} workers"
            ))),
        }
    }

    /// Returns true if there are other workers.
    pub fn has_others(self) -> bool {
        self.count > 1
    }

    /// The number of the worker that has the peer with this key.
    pub fn home(self, key: &[u8; 32]) -> u32 {
        // Keys are as good as random, but people choose some by their beginning.
        let words = key.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let mixed = words.fold(0, |mixed, word| mixed ^ word);
        (mixed % u64::from(self.count)) as u32
    }

    /// Returns true if this worker has the peer with this key.
    pub fn is_home(self, key: &[u8; 32]) -> bool {
        self.home(key) == self.number
    }

    /// The upper eight bits of the indices that a generation of this worker makes.
    pub fn tag(self, generation: u32) -> u32 {
        generation % (TAGS / self.count) * self.count + self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: u32) -> impl Iterator<Item = Place> {
        (0..count).map(move |number| Place { number, count })
    }

    #[test]
    fn an_index_leads_to_the_worker_that_made_it() {
        for count in 1..=MOST {
            for place in places(count) {
                let generations = TAGS / count;
                assert!(generations >= 4);
                let tags: Vec<u32> = (0..generations).map(|number| place.tag(number)).collect();
                assert!(tags.is_sorted_by(|one, next| one < next));
                for tag in tags {
                    assert_eq!((tag % count, tag < TAGS), (place.number, true));
                }
                assert_eq!(place.tag(generations), place.tag(0));
            }
        }
        // One worker has the tags that generations had before there were several.
        let [alone] = places(1).collect::<Vec<_>>()[..] else {
            panic!("one")
        };
        assert_eq!((alone.tag(255), alone.tag(256)), (255, 0));
    }

    #[test]
    fn each_peer_has_one_home_whatever_its_key_begins_with() {
        for count in 1..=MOST {
            let mut peers = vec![0; count as usize];
            for number in 0..64 * count {
                let mut key = *b"the same beginning of many keys.";
                let end = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                key[24..].copy_from_slice(&end.to_le_bytes());
                let homes: Vec<_> = places(count).filter(|place| place.is_home(&key)).collect();
                assert_eq!(homes.len(), 1);
                peers[homes[0].number as usize] += 1;
            }
            assert!(
                peers.iter().all(|peers| (16..=256).contains(peers)),
                "{peers:?}"
            );
        }
    }

    #[test]
    fn a_place_that_indices_cannot_name_is_refused() {
        assert!(Place::new((63, 64)).is_ok());
        for wrong in [(0, 65), (1, 1), (0, 0)] {
            assert!(Place::new(wrong).is_err());
        }
    }
}
