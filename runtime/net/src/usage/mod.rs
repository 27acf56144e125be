//! The usage of modules: how much of their grants they have used. The parts of the host note it,
//! and the status shows it.

mod destinations;
mod pace;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use destinations::Destinations;

use crate::Used;
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

    /// Returns what is noted here, as of now. `guest_time_ns` is the time spent in the module.
    pub fn used(&self, guest_time_ns: u64) -> Used {
        let instances = self.instances.load(Ordering::Relaxed);
        Used {
            destinations: self.destinations.list(),
            host_crypto: self.ciphers.load(Ordering::Relaxed),
            host_keys: self.signatures.load(Ordering::Relaxed),
            memory_peak_bytes: self.memory_peak.load(Ordering::Relaxed),
            cpu_permille: self.pace.permille(guest_time_ns),
            instances: u32::try_from(instances).unwrap_or(u32::MAX),
            ..Used::default()
        }
    }
}
