//! The usage of modules: how much of their grants they have used. The parts of the host note it,
//! and the status shows it.

mod destinations;
mod keep;
mod pace;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use destinations::Destinations;
pub use keep::note_usage;
pub(crate) use keep::{Kept, Subject};
pub use record::LastUse;

use crate::Used;
use crate::counters::Counters;
use pace::Pace;

/// The notes on a running module, besides its counters.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) destinations: Destinations,
    memory_peak: AtomicU64,
    instances: AtomicU64,
    ciphers: AtomicBool,
    signatures: AtomicBool,
    pace: Pace,
}

impl Usage {
    /// Notes the memory that all instances use.
    pub(crate) fn holds(&self, memory: u64) {
        self.memory_peak.fetch_max(memory, Ordering::Relaxed);
    }

    /// Notes that the host runs ciphers for it.
    pub(crate) fn ciphers(&self) {
        self.ciphers.store(true, Ordering::Relaxed);
    }

    /// Notes that a key of the host signs for it.
    pub(crate) fn signs(&self) {
        self.signatures.store(true, Ordering::Relaxed);
    }

    /// Notes that an instance begins.
    pub(crate) fn begins(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an instance ends.
    pub(crate) fn ends(&self) {
        self.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Returns the usage as of now, for these sockets and this number of open flows.
    pub(crate) fn used(&self, sockets: &[String], flows: usize) -> Used {
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
