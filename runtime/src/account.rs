//! What the host keeps on behalf of a module, in one account a server.
//!
//! What the host keeps between two calls is charged here, together with the linear memory
//! ([`Limiter`](crate::limiter)), up to its limit `M` + [`ALLOWANCE`] for each instance that lives.
//! What is charged goes back when the last part of the process lets go of it, which may be long after
//! the instance: a flow is the application's too. What one call brings along is bounded by itself
//! ([`CALL_BYTES`], twice, for it is converted), and so is what the table says is not charged.
//!
//! What the application keeps of its own for a flow, a socket for example, is charged as far as it says
//! how much that is ([`Limits::flow_bytes`](crate::Limits::flow_bytes)). The growth of a process is more
//! than the account by what the table says is not charged, and by what the allocator does not give back.
//! A process of `watm serve` is to grow by no more than `M` + 64 MiB: `make hostile` measures it.
//!
//! | the guest has the host keep | at most, under the default limits | charged |
//! |---|---|---|
//! | linear memory | `M` | as it grows |
//! | table elements of core modules | 131072 x 16 B | no: 2 MiB |
//! | flows: both ends, their names, and the application's part | 32768 x (1.5 KiB + 16 KiB + `flow_bytes`) | when they are opened |
//! | what waits in a stream, each way | 32768 x 256 KiB | as it waits |
//! | what waits in a flow of datagrams, each way | 32768 x 512 KiB | as it waits |
//! | handles: connections, sockets, lookups, keys | 65536 x up to 4 KiB | when they are opened |
//! | the runtime's own table of handles | 65600 x 24 B | no: 2 MiB |
//! | tokens of handles that are gone, until the call ends | 66560 x 80 B | no: 5 MiB, see [`ReadyList`](crate::ready::ReadyList) |
//! | addresses that a socket has heard from or dialled | 94208 x 64 B a socket | as they come: 6 MiB |
//! | messages between generations | 4 MiB and 8192 x 64 B | no: one mailbox an instance |
//! | datagrams that wait for a connector | 256 x 64 KiB a socket | as they wait |
//! | reasons of errors, names of peers | 256 B each | with the flow |
//! | a snapshot, for as long as its reader lives | [`CALL_BYTES`], twice | no |
//! | records of the log | 4160 B, 20 a second | no: written at once |
//! | names that are looked up at once | 8 | no |
//! | names of destinations that were asked for | 64 x 300 B | no |
//! | of a WATER module: lines, descriptors and what they read ahead | 8 KiB, 64 x 80 KiB | no: 5 MiB an instance |
//!
//! Flows in which something waits share the room for queues: of `n` such flows none has a queue
//! longer than the `2n`th part, one queue each way. 32 flows so have the queues of the default limits
//! however small `M` is, and idle flows take no part. Queues that are full keep what they have when
//! others come, so the last quarter of the room is for queues of [`FLOOR`] at most: 1024 of them. An
//! empty stream takes [`LEAST`] even if nothing is left, so that none stops for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ErrorCode;

/// What the host keeps for one instance beside its linear memory, in bytes.
pub(crate) const ALLOWANCE: usize = 16 << 20;

/// What one call may bring from the guest's memory, in bytes: a snapshot or a status of 32768 peers
/// takes about six million.
pub(crate) const CALL_BYTES: usize = 8 << 20;

/// What a queue may have however many others there are, as long as anything is left, in bytes.
const FLOOR: usize = 4096;

/// What an empty stream takes though nothing is left, in bytes.
pub(crate) const LEAST: usize = 256;

/// This part of the room for queues is for those of [`FLOOR`] at most.
const FLOOR_PART: usize = 4;

/// Of the memory that an instance may have and has not, queues leave three quarters to it.
const QUEUES_OF_MEMORY: usize = 4;

/// What the host keeps on behalf of the module of a server. Times and orders do not matter: each
/// number is exact, and they are compared as of about now.
#[derive(Default)]
pub(crate) struct Account {
    /// What the instances that live may have of linear memory, together.
    memory_limit: AtomicUsize,
    /// What they have.
    memory: AtomicUsize,
    /// What the host keeps for instances that live.
    allowance: AtomicUsize,
    /// What the host keeps.
    kept: AtomicUsize,
    /// Flows in which something waits.
    waiting: AtomicUsize,
}

impl Account {
    /// An instance begins, with so much linear memory at most.
    pub(crate) fn instance_begins(&self, memory_limit: usize) {
        self.memory_limit.fetch_add(memory_limit, Ordering::Relaxed);
        self.allowance.fetch_add(ALLOWANCE, Ordering::Relaxed);
    }

    /// It is gone, and had so much.
    pub(crate) fn instance_ends(&self, memory_limit: usize, memory: usize) {
        self.memory.fetch_sub(memory, Ordering::Relaxed);
        self.memory_limit.fetch_sub(memory_limit, Ordering::Relaxed);
        self.allowance.fetch_sub(ALLOWANCE, Ordering::Relaxed);
    }

    /// Let the linear memory of an instance grow; `false`: there is no room beside what the host
    /// keeps.
    pub(crate) fn memory_grows(&self, bytes: usize) -> bool {
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        if self.kept.load(Ordering::Relaxed) <= self.limit(1) {
            return true;
        }
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    /// Charge so much; fails with [`ErrorCode::LimitReached`].
    pub(crate) fn charge(self: &Arc<Account>, bytes: usize) -> Result<Charge, ErrorCode> {
        let mut charge = Charge::new(self);
        charge.add(bytes)?;
        Ok(charge)
    }

    /// Charge so much, which is bounded in another way.
    pub(crate) fn charge_anyway(self: &Arc<Account>, bytes: usize) -> Charge {
        let mut charge = Charge::new(self);
        charge.set(bytes);
        charge
    }

    /// What the host keeps now, in bytes.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// How long a queue may be that is to have `most` bytes at most, if something waits in so many
    /// flows.
    fn share(&self, most: usize, flows: usize) -> usize {
        let room = self.limit(QUEUES_OF_MEMORY);
        let kept = self.kept();
        let fair = room / (2 * flows);
        let left = (room - room / FLOOR_PART).saturating_sub(kept);
        let least = FLOOR.min(room.saturating_sub(kept));
        fair.min(left).max(least).min(most)
    }

    /// What may be kept, with this part of the memory that the instances have not taken.
    fn limit(&self, part: usize) -> usize {
        let memory = self.memory.load(Ordering::Relaxed);
        let memory_limit = self.memory_limit.load(Ordering::Relaxed);
        let spare = memory_limit.saturating_sub(memory);
        let allowance = self.allowance.load(Ordering::Relaxed);
        allowance.saturating_add(spare / part)
    }
}

/// So many bytes of an account, until it is dropped.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
    /// It is of a flow in which something waits.
    waits: bool,
}

impl Charge {
    /// Nothing yet.
    pub(crate) fn new(account: &Arc<Account>) -> Charge {
        Charge {
            account: account.clone(),
            bytes: 0,
            waits: false,
        }
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charge so much more; fails with [`ErrorCode::LimitReached`].
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ErrorCode> {
        let kept = self.account.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > self.account.limit(1) {
            self.account.kept.fetch_sub(bytes, Ordering::Relaxed);
            return Err(ErrorCode::LimitReached);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Give so much back.
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes));
    }

    /// Charge so much in all, which the caller has seen to be bounded.
    pub(crate) fn set(&mut self, bytes: usize) {
        let kept = &self.account.kept;
        if bytes > self.bytes {
            kept.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            kept.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Charge so much in all for a flow, and note if something waits in it.
    pub(crate) fn set_flow(&mut self, bytes: usize, waits: bool) {
        self.set(bytes);
        if waits != self.waits {
            let waiting = &self.account.waiting;
            match waits {
                true => waiting.fetch_add(1, Ordering::Relaxed),
                false => waiting.fetch_sub(1, Ordering::Relaxed),
            };
            self.waits = waits;
        }
    }

    /// How long a queue may be now that is to have `most` bytes at most.
    pub(crate) fn share(&self, most: usize) -> usize {
        let waiting = self.account.waiting.load(Ordering::Relaxed);
        let flows = waiting + usize::from(!self.waits);
        self.account.share(most, flows.max(1))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set_flow(0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(memory: usize) -> Arc<Account> {
        let account = Arc::<Account>::default();
        account.instance_begins(memory);
        account
    }

    #[test]
    fn what_is_kept_and_the_memory_are_bounded_together() {
        const MEMORY: usize = 16 << 20;
        let account = account(MEMORY);
        let all = account.charge(ALLOWANCE + MEMORY).expect("there is room");
        assert!(account.charge(1).is_err());
        assert!(!account.memory_grows(1));
        drop(all);
        assert!(account.memory_grows(MEMORY));
        let rest = account.charge(ALLOWANCE).expect("there is room");
        assert!(account.charge(1).is_err());
        // Another instance brings its own room, and takes it along.
        account.instance_begins(MEMORY);
        let second = account.charge(MEMORY).expect("there is room");
        account.instance_ends(MEMORY, 0);
        assert!(account.charge(1).is_err());
        drop((rest, second));
        assert_eq!(account.kept(), 0);
        account.instance_ends(MEMORY, MEMORY);
        // What outlives the last instance has no room to grow.
        assert!(account.charge(1).is_err());
    }

    const MOST: usize = 256 << 10;

    #[test]
    fn queues_are_shorter_the_more_of_them_are_full() {
        let account = account(1 << 20);
        let mut full = Vec::new();
        let mut before = MOST;
        for count in 0..1000 {
            let mut queue = Charge::new(&account);
            let share = queue.share(MOST);
            assert!(share >= FLOOR, "{count} {share}");
            assert!(share <= before, "{count} {share}");
            assert!(count >= 32 || share == MOST, "{count} {share}");
            before = share;
            queue.set_flow(share, true);
            full.push(queue);
        }
        assert!(before < MOST);
        assert!(account.kept() <= ALLOWANCE + (1 << 20));
        drop(full);
        assert_eq!(Charge::new(&account).share(MOST), MOST);
    }

    #[test]
    fn idle_flows_do_not_shorten_the_queues_of_others() {
        let account = account(96 << 20);
        let idle: Vec<Charge> = (0..10_000)
            .map(|_| account.charge(1024).expect("there is room"))
            .collect();
        let mut busy: Vec<Charge> = (0..64).map(|_| Charge::new(&account)).collect();
        for queue in &mut busy {
            assert_eq!(queue.share(MOST), MOST);
            queue.set_flow(MOST, true);
        }
        drop(idle);
    }

    #[test]
    fn queues_do_not_go_beyond_what_is_left() {
        let account = account(1 << 20);
        let rest = 100;
        let kept = account.limit(QUEUES_OF_MEMORY) - rest;
        let all = account.charge(kept).expect("there is room");
        assert_eq!(Charge::new(&account).share(MOST), rest);
        drop(all);
    }
}
