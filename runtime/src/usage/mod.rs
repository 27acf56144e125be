//! The usage of modules: how much of their grants they have used. The parts of the host note it,
//! and the status shows it.

mod destinations;
mod keep;
mod pace;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_derive::{Deserialize, Serialize};

pub(crate) use destinations::Destinations;
pub use keep::note_usage;
pub(crate) use keep::{Kept, Subject};
pub use record::LastUse;

use crate::counters::Counters;
use pace::Pace;

/// The usage of a module, beside what it [asked for](crate::Module::seal) and [may
/// have](crate::Module::may_have).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Used {
    /// The outer sockets: the protocol, the label, and the address.
    pub sockets: Vec<String>,
    /// The destinations that it asked to connect to, the latest first; the last 64.
    pub destinations: Vec<UsedDestination>,
    /// True if the host has run ciphers for it.
    pub host_crypto: bool,
    /// True if a key of the host has signed for it.
    pub host_keys: bool,
    /// The memory of all its instances now, in bytes.
    pub memory_bytes: u64,
    /// The peak of that memory, in bytes.
    pub memory_peak_bytes: u64,
    /// The CPU use in thousandths of a core, over ten seconds to a minute.
    pub cpu_permille: u32,
    /// The number of flows that are open now.
    pub flows: u32,
    /// The number of flows since the start.
    pub flows_opened: u64,
    /// The number of instances now.
    pub instances: u32,
}

/// A destination that a module asked to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UsedDestination {
    /// The host as the module named it, and the port, in the format of [`Target`](crate::Target):
    /// `example.com:443`, `udp://192.0.2.1:53`.
    pub target: String,
    /// The number of connections that it got.
    pub connections: u64,
    /// The number of connections that failed: it may not connect there, or nobody answered.
    pub failures: u64,
}

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
