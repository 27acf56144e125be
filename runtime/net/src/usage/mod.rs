//! The usage of modules: how much of their grants they have used. The parts of the host note it,
//! and the status shows it.

mod destinations;
mod pace;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use destinations::Destinations;

use crate::Used;
use crate::counters::Counters;
use pace::Pace;

/// The notes on a running module, besides its counters.
#[derive(Default)]
pub struct Usage {
    /// The destinations that it asked for.
    pub destinations: Destinations,
    memory_peak: AtomicU64,
    instances: AtomicU64,
    ciphers: AtomicBool,
    signatures: AtomicBool,
    pace: Pace,
}

impl Usage {
    /// Notes the memory that all instances use.
    pub fn holds(&self, memory: u64) {
        self.memory_peak.fetch_max(memory, Ordering::Relaxed);
    }

    /// Notes that the host runs ciphers for it.
    pub fn ciphers(&self) {
        self.ciphers.store(true, Ordering::Relaxed);
    }

    /// Notes that a key of the host signs for it.
    pub fn signs(&self) {
        self.signatures.store(true, Ordering::Relaxed);
    }

    /// Notes that an instance begins.
    pub fn begins(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an instance ends.
    pub fn ends(&self) {
        self.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Returns the usage as of now, for these sockets and this number of open flows.
    pub fn used(&self, sockets: &[String], flows: usize) -> Used {
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let usage = &self.usage;
        Used {
            sockets: sockets.to_vec(),
            destinations: usage.destinations.list(),
            host_crypto: usage.ciphers.load(Ordering::Relaxed),
            host_keys: usage.signatures.load(Ordering::Relaxed),
            memory_bytes: self.memory_bytes.get(),
            memory_peak_bytes: usage.memory_peak.load(Ordering::Relaxed),
            cpu_permille: usage.pace.permille(self.guest_time_ns.get()),
            flows: count(flows as u64),
            flows_opened: self.flows_opened.get(),
            instances: count(usage.instances.load(Ordering::Relaxed)),
        }
    }
}
