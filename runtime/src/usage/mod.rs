//! What a module has used of what it may have.

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

/// What a module has used, beside what it [asked for](crate::Module::seal) and [may
/// have](crate::Module::may_have).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Used {
    /// Outer sockets: the kind, the label, and the address.
    pub sockets: Vec<String>,
    /// Where it asked to connect to, the latest first: the 64 that it asked for last.
    pub destinations: Vec<UsedDestination>,
    /// Whether it has had the host's ciphers run.
    pub host_crypto: bool,
    /// Whether it has had something signed by a key of the host.
    pub host_keys: bool,
    /// Memory of all its instances now, in bytes.
    pub memory_bytes: u64,
    /// The most at any time.
    pub memory_peak_bytes: u64,
    /// Share of one core, in thousandths, over some ten seconds to a minute.
    pub cpu_permille: u32,
    /// Flows open now.
    pub flows: u32,
    /// Flows since the start.
    pub flows_opened: u64,
    /// Instances now.
    pub instances: u32,
}

/// Somewhere that a module asked to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UsedDestination {
    /// The host as the module named it, and the port, as [`Target`](crate::Target) has it:
    /// `example.com:443`, `udp://192.0.2.1:53`.
    pub target: String,
    /// Connections that it got.
    pub connections: u64,
    /// Those that it did not get: it may not go there, or nobody answered.
    pub failures: u64,
}

/// What is noted of it while it runs, besides what is counted.
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
    /// So much memory is in use by all instances.
    pub(crate) fn holds(&self, memory: u64) {
        self.memory_peak.fetch_max(memory, Ordering::Relaxed);
    }

    /// It has the host's ciphers run.
    pub(crate) fn ciphers(&self) {
        self.ciphers.store(true, Ordering::Relaxed);
    }

    /// It has something signed by a key of the host.
    pub(crate) fn signs(&self) {
        self.signatures.store(true, Ordering::Relaxed);
    }

    /// An instance begins.
    pub(crate) fn begins(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// One ends.
    pub(crate) fn ends(&self) {
        self.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// As of now, by something with these sockets that has so many flows open.
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
