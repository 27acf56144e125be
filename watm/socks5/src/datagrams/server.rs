//! The flows of clients' associations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use watm_core::{Destination, FlowInfo};

/// The most flows of one association at a time.
const MAX_DESTINATIONS: usize = 1024;

/// The flows by association.
#[derive(Default)]
pub struct Server(BTreeMap<u64, Flows>);

/// The flows of one association.
#[derive(Default)]
struct Flows {
    by_destination: HashMap<Destination, u64>,
    numbers: BTreeSet<u64>,
}

impl Server {
    /// The flow of an association to this destination.
    pub fn flow(&self, association: u64, destination: &Destination) -> Option<u64> {
        let flows = self.0.get(&association)?;
        flows.by_destination.get(destination).copied()
    }

    /// Returns true if an association may have another flow.
    pub fn has_room(&self, association: u64) -> bool {
        let flows = self.0.get(&association);
        flows.is_none_or(|flows| flows.numbers.len() < MAX_DESTINATIONS)
    }

    /// Record an association's flow to this destination.
    pub fn insert(&mut self, association: u64, destination: Destination, flow: u64) {
        let flows = self.0.entry(association).or_default();
        flows.by_destination.insert(destination, flow);
        flows.numbers.insert(flow);
    }

    /// Record the end of a flow to this destination.
    pub fn forget(&mut self, association: u64, destination: &Destination) {
        if let Some(flows) = self.0.get_mut(&association)
            && let Some(flow) = flows.by_destination.remove(destination)
        {
            flows.numbers.remove(&flow);
            if flows.numbers.is_empty() {
                self.0.remove(&association);
            }
        }
    }

    /// Record the end of an association. Returns its flows.
    pub fn end(&mut self, association: u64) -> BTreeSet<u64> {
        let flows = self.0.remove(&association);
        flows.map(|flows| flows.numbers).unwrap_or_default()
    }
}

/// The description of a flow for the application.
pub fn info(
    source: SocketAddr,
    local: SocketAddr,
    to: &Destination,
    user: Option<String>,
) -> FlowInfo {
    FlowInfo {
        source,
        destination: to.clone(),
        peer: user,
        underlay: Some((source, local)),
        attributes: Vec::new(),
    }
}
