//! The budget of TCP buffers, shared fairly between peers. [`Tcp`](super::Tcp) owns it, and flows
//! ask it.

use super::buffer::Pool;
use crate::PeerId;
use crate::hash::{Keyed, Map};

/// The bytes of free chunks kept for the next flow. A buffer is returned as soon as it is empty,
/// and eight of the largest are more than are in use at once without loss.
const KEEP: usize = 16 << 20;

/// The memory of TCP buffers, and the bytes that each peer holds.
pub(crate) struct Memory {
    pub pool: Pool,
    pub budget: usize,
    held: Map<PeerId, usize>,
}

impl Memory {
    pub(crate) fn new(budget: usize, hash: Keyed) -> Self {
        Memory {
            pool: Pool::new(KEEP),
            budget,
            held: Map::with_hasher(hash),
        }
    }

    /// Returns true if this peer may have this many bytes more. A peer may hold as much as it
    /// leaves for the others, so that one alone gets half of the budget, two get a third each, and
    /// something is always left for the next.
    pub(crate) fn grants(&self, peer: PeerId, bytes: usize) -> bool {
        let left = self.budget.saturating_sub(self.pool.lent() + bytes);
        let held = self.held.get(&peer).copied().unwrap_or(0);
        held + bytes <= left
    }

    /// Records that a flow of the peer held `before` and holds `after`.
    pub(crate) fn account(&mut self, peer: PeerId, before: usize, after: usize) {
        if before == after {
            return;
        }
        let held = self.held.entry(peer).or_default();
        *held = *held + after - before;
        if *held == 0 {
            self.held.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::buffer::{Buffer, CHUNK};

    #[test]
    fn nobody_gets_the_last_of_it() {
        let mut memory = Memory::new(4 * CHUNK, Keyed::new(1));
        assert!(memory.grants(1, 2 * CHUNK));
        assert!(!memory.grants(1, 2 * CHUNK + 1));
        let mut buffer = Buffer::default();
        buffer.write(0, &[0; 2 * CHUNK], &mut memory.pool);
        memory.account(1, 0, 2 * CHUNK);
        assert!(!memory.grants(1, 1));
        assert!(memory.grants(2, CHUNK));
        buffer.clear(&mut memory.pool);
        memory.account(1, 2 * CHUNK, 0);
        assert!(memory.grants(1, 2 * CHUNK));
    }
}
