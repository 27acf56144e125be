//! The status of a server, which `driver` collects.

use std::collections::BTreeMap;

use crate::{GenerationStatus, Module, PeerStatus, Phase, Used};

/// The state of a server.
#[derive(Debug, Clone)]
pub struct Status {
    /// The phase.
    pub phase: Phase,
    /// The number of the serving generation: the number of instances before it, by swaps and
    /// restarts.
    pub generation: u32,
    /// The running generations, by number. Empty for a WATER module, which has an instance for each
    /// connection, or if none runs.
    pub generations: Vec<GenerationStatus>,
    /// The module that serves, or is about to start again; `None` if the server is closed.
    pub module: Option<Module>,
    /// The usage of the module.
    pub used: Used,
    /// The files that a [`Capture`](crate::Capture) is writing, in a sentence for each.
    pub captures: Vec<String>,
    /// The peers, in the order of the module's configuration.
    pub peers: Vec<PeerStatus>,
    /// The number of flows that are open now.
    pub flows: u32,
    /// Counters by name. Those of the host begin with `host.`; see the
    /// [crate page](crate#counters).
    pub counters: BTreeMap<String, u64>,
}
