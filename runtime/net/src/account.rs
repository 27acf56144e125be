//! The memory that the host keeps on behalf of a module, in one account for each server. `flow`,
//! `net` and `component` charge it.
//!
//! Memory that the host keeps between two calls is charged here, together with the linear memory
//! (`Limiter`), up to the module's limit `M` + [`ALLOWANCE`] for each live
//! instance. A charge is returned when the last part of the process drops the object, which may be
//! long after the instance: a flow is the application's too. The memory of one call has its own
//! bound ([`CALL_BYTES`], twice, for it is converted), and so have the rows of the table that are
//! not charged.
//!
//! Memory that the application keeps for a flow, a socket for example, is charged by the amount
//! that it declares ([`Limits::flow_bytes`](crate::Limits::flow_bytes)). A process grows by more
//! than the account: by the rows of the table that are not charged, and by what the allocator does
//! not give back. A process of `watm serve` must grow by no more than `M` + 64 MiB: `make hostile`
//! measures it.
//!
//! | kept by the host for the guest | at most, under the default limits | charged |
//! |---|---|---|
//! | linear memory, and tables of core modules | `M` | as they grow |
//! | flows: both ends, their names, and the application's part | 32768 x (1.5 KiB + 16 KiB + `flow_bytes`) | when they are opened |
//! | queued bytes of a stream, each way | 32768 x 256 KiB | as they wait |
//! | queued datagrams of a flow, each way | 32768 x 512 KiB | as they wait |
//! | handles: connections, sockets, lookups, keys | 65536 x up to 4 KiB | when they are opened |
//! | the runtime's own table of handles | 65600 x 24 B | no: 2 MiB |
//! | tokens of dropped handles, until the call ends | 66560 x 80 B | no: 5 MiB, see [`ReadyList`](crate::ready::ReadyList) |
//! | addresses that a socket has heard from or dialled | 94208 x 64 B a socket | as they come: 6 MiB |
//! | messages between generations | 4 MiB and 8192 x 64 B | no: one mailbox an instance |
//! | datagrams that other sockets of its address pass to one | 256 KiB a socket | as they come |
//! | datagrams that wait for a connector | 256 x 64 KiB a socket | as they wait |
//! | reasons of errors, names of peers | 256 B each | with the flow |
//! | a snapshot, for as long as its reader lives | [`CALL_BYTES`], twice | no |
//! | records of the log | 4160 B, 20 a second | no: written at once |
//! | concurrent lookups of names | 8 | no |
//! | names of destinations that were asked for | 64 x 300 B | no |
//! | of a WATER module: lines, descriptors and their read-ahead | 8 KiB, 64 x 80 KiB | no: 5 MiB an instance |
//!
//! Flows with queued data share the room for queues: with `n` such flows, no queue is longer than
//! the `2n`th part, with one queue each way. The queues of 32 flows therefore reach the default
//! limits however small `M` is, and idle flows do not count. Full queues keep their contents when
//! others come, so the last quarter of the room is for queues of 4096 bytes at most: 1024 of them.
//! An empty stream takes [`LEAST`] even if nothing is left, so that none stops for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ErrorCode;

/// The bytes that the host keeps for one instance beside its linear memory.
pub const ALLOWANCE: usize = 16 << 20;

/// The most bytes that one call may bring from the guest's memory: a snapshot or a status of 32768
/// peers takes about six million.
pub const CALL_BYTES: usize = 8 << 20;

/// The bytes that a queue may have however many others there are, as long as anything is left.
const FLOOR: usize = 4096;

/// The bytes that an empty stream takes though nothing is left.
pub const LEAST: usize = 256;

/// The divisor for the part of the room that is for queues of 4096 bytes at most.
const FLOOR_PART: usize = 4;

/// The divisor for the instances' unused memory: queues leave three quarters of it to them.
const QUEUES_OF_MEMORY: usize = 4;

/// The memory that the host keeps on behalf of the module of a server. The atomics are relaxed:
/// each number is exact, and comparisons between them are approximate in time.
#[derive(Default)]
pub struct Account {
    /// The limits of linear memory of the live instances, added up.
    memory_limit: AtomicUsize,
    /// The linear memory of the live instances.
    memory: AtomicUsize,
    /// The allowances of the live instances.
    allowance: AtomicUsize,
    /// The bytes that the host keeps.
    kept: AtomicUsize,
    /// The number of flows with queued data.
    waiting: AtomicUsize,
}

impl Account {
    /// Notes that an instance begins, with this limit of linear memory.
    pub fn instance_begins(&self, memory_limit: usize) {
        self.memory_limit.fetch_add(memory_limit, Ordering::Relaxed);
        self.allowance.fetch_add(ALLOWANCE, Ordering::Relaxed);
    }

    /// Notes that an instance is gone, and how much memory it had.
    pub fn instance_ends(&self, memory_limit: usize, memory: usize) {
        self.memory.fetch_sub(memory, Ordering::Relaxed);
        self.memory_limit.fetch_sub(memory_limit, Ordering::Relaxed);
        self.allowance.fetch_sub(ALLOWANCE, Ordering::Relaxed);
    }

    /// Lets the linear memory of an instance grow. Returns false if the host keeps too much beside
    /// it.
    pub fn memory_grows(&self, bytes: usize) -> bool {
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        if self.kept.load(Ordering::Relaxed) <= self.limit(1) {
            return true;
        }
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    /// Charges this many bytes. Fails with [`ErrorCode::LimitReached`].
    pub fn charge(self: &Arc<Account>, bytes: usize) -> Result<Charge, ErrorCode> {
        let mut charge = Charge::new(self);
        charge.add(bytes)?;
        Ok(charge)
    }

    /// Charges this many bytes, which another limit bounds.
    pub fn charge_anyway(self: &Arc<Account>, bytes: usize) -> Charge {
        let mut charge = Charge::new(self);
        charge.set(bytes);
        charge
    }

    /// Returns the bytes that the host keeps now.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Returns the length that a queue with a limit of `most` bytes may have, if `flows` flows have
    /// queued data.
    fn share(&self, most: usize, flows: usize) -> usize {
        let room = self.limit(QUEUES_OF_MEMORY);
        let kept = self.kept();
        let fair = room / (2 * flows);
        let left = (room - room / FLOOR_PART).saturating_sub(kept);
        let least = FLOOR.min(room.saturating_sub(kept));
        fair.min(left).max(least).min(most)
    }

    /// Returns the most bytes that the host may keep, with this part of the memory that the
    /// instances have not taken.
    fn limit(&self, part: usize) -> usize {
        let memory = self.memory.load(Ordering::Relaxed);
        let memory_limit = self.memory_limit.load(Ordering::Relaxed);
        let spare = memory_limit.saturating_sub(memory);
        let allowance = self.allowance.load(Ordering::Relaxed);
        allowance.saturating_add(spare / part)
    }
}

/// A number of bytes of an account, charged until this is dropped.
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
    /// True if it is of a flow with queued data.
    waits: bool,
}

impl Charge {
    /// Makes a charge of 0 bytes.
    pub fn new(account: &Arc<Account>) -> Charge {
        Charge {
            account: account.clone(),
            bytes: 0,
            waits: false,
        }
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges this many bytes more. Fails with [`ErrorCode::LimitReached`].
    pub fn add(&mut self, bytes: usize) -> Result<(), ErrorCode> {
        let kept = self.account.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > self.account.limit(1) {
            self.account.kept.fetch_sub(bytes, Ordering::Relaxed);
            return Err(ErrorCode::LimitReached);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Returns this many bytes to the account.
    pub fn sub(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes));
    }

    /// Sets the total charge, which the caller has checked to be bounded.
    pub fn set(&mut self, bytes: usize) {
        let kept = &self.account.kept;
        if bytes > self.bytes {
            kept.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            kept.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Sets the total charge for a flow, and notes if it has queued data.
    pub fn set_flow(&mut self, bytes: usize, waits: bool) {
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

    /// Returns the length that a queue with a limit of `most` bytes may have now.
    pub fn share(&self, most: usize) -> usize {
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
        // A charge that outlives the last instance has no room to grow.
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
