//! The memory and table limits of an instance. Wasmtime calls it before anything grows.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use watm_net::counters::Counters;

/// The most entries of all tables; a table entry is a function pointer, and a large module has a
/// few thousand functions.
const MAX_TABLE_ELEMENTS: usize = 1 << 17;

/// The most core instances, tables and memories of one module. The usual component has a handful,
/// for adapters and trampolines; a core module has one of each.
const MAX_PARTS: usize = 32;

/// Bounds the memory and tables of an instance, and remembers if the instance wanted more. Its
/// memory is counted in `host.memory_bytes` for as long as it lives.
pub struct Limiter {
    max_memory: usize,
    memory: usize,
    tables: usize,
    refused: bool,
    counters: Arc<Counters>,
}

impl Limiter {
    /// Bounds an instance, which begins now, to this linear memory in bytes.
    pub fn new(max_memory: usize, counters: Arc<Counters>) -> Limiter {
        counters.usage.begins();
        counters.account.instance_begins(max_memory);
        Limiter {
            max_memory,
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
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current));
        let growth = total - self.memory;
        if total > self.max_memory || !self.counters.account.memory_grows(growth) {
            self.refused = true;
            return Ok(false);
        }
        self.counters.memory_bytes.add(growth as u64);
        self.counters.usage.holds(self.counters.memory_bytes.get());
        self.memory = total;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.tables.saturating_add(desired.saturating_sub(current));
        if total > MAX_TABLE_ELEMENTS {
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
        MAX_PARTS
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
