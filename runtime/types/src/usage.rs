//! The usage of a module, as its status and its record on disk show it.

use serde_derive::{Deserialize, Serialize};

/// The usage of a module, beside what it asked for and may
/// have.
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
    /// The host as the module named it, and the port, in the format of `Target`:
    /// `example.com:443`, `udp://192.0.2.1:53`.
    pub target: String,
    /// The number of connections that it got.
    pub connections: u64,
    /// The number of connections that failed: it may not connect there, or nobody answered.
    pub failures: u64,
}
