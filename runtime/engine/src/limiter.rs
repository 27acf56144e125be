//! The memory and table limits of an instance. Wasmtime calls it before anything grows.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use watm_net::counters::Counters;

/// The most entries of all tables; a table entry is a function pointer, and a large module has a
/// few thousand functions.
const MAX_TABLE_ELEMENTS: usize = 1 << 17;

/// The bytes of an element.
const ELEMENT: usize = size_of::<usize>();

/// The most core instances and tables of one module. The usual component has a handful, for adapters
/// and trampolines; a core module has one of each.
const MAX_PARTS: usize = 32;

/// The most memories of a component: one for each module in it that is not an adapter. Each takes
/// 4 GiB of addresses however small it is, and two of the mappings that Linux gives a process, 65530
/// for all modules together.
pub const MEMORIES_OF_COMPONENT: usize = 4;

/// The most memories of a WATER module, of which there is an instance for each connection.
pub const MEMORIES_OF_WATER: usize = 1;

/// Bounds the memory and tables of an instance, and remembers if the instance wanted more. Its
/// memory is counted in `host.memory_bytes` for as long as it lives.
pub struct Limiter {
    max_memory: usize,
    max_memories: usize,
    /// The bytes of its memories and tables.
    memory: usize,
    tables: usize,
    refused: bool,
    counters: Arc<Counters>,
}

impl Limiter {
    /// Bounds an instance, which begins now, to this number of bytes in this number of memories.
    pub fn new(max_memory: usize, max_memories: usize, counters: Arc<Counters>) -> Limiter {
        counters.usage.begins();
        counters.account.instance_begins(max_memory);
        Limiter {
            max_memory,
            max_memories,
            memory: 0,
            tables: 0,
            refused: false,
            counters,
        }
    }

    /// Returns the memory limit, if the instance ran into it.
    pub fn refused(&self) -> Option<usize> {
        self.refused.then_some(self.max_memory)
    }

    /// Charges these bytes to the limit and the account. Returns false if either has no room.
    fn grow(&mut self, bytes: usize) -> bool {
        let total = self.memory.saturating_add(bytes);
        if total > self.max_memory || !self.counters.account.memory_grows(bytes) {
            self.refused = true;
            return false;
        }
        self.counters.memory_bytes.add(bytes as u64);
        self.counters.usage.holds(self.counters.memory_bytes.get());
        self.memory = total;
        true
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let total = self.tables.saturating_add(growth);
        if total > MAX_TABLE_ELEMENTS || !self.grow(growth.saturating_mul(ELEMENT)) {
            return Ok(false);
        }
        self.tables = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_PARTS
    }

    fn tables(&self) -> usize {
        MAX_PARTS
    }

    fn memories(&self) -> usize {
        self.max_memories
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.counters.memory_bytes.sub(self.memory as u64);
        let account = &self.counters.account;
        account.instance_ends(self.max_memory, self.memory);
        self.counters.usage.ends();
    }
}
