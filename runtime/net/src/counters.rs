//! The host's counters of a server; see the crate page for their meaning. The parts of the host
//! count, and `server` and `driver` report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Used;
use crate::account::Account;
use crate::usage::Usage;

macro_rules! counters {
    ($($field:ident = $name:literal),* $(,)?) => {
        /// The host's counters of one server; never reset, except for gauges.
        #[derive(Default)]
        pub struct Counters {
            $(#[doc = concat!("`", $name, "`.")] pub $field: Counter,)*
            /// The notes on what the module uses.
            pub usage: Usage,
            /// The account of the memory kept for the module.
            pub account: Arc<Account>,
        }

        impl Counters {
            /// Adds all counters to a map, under the names that the status has.
            pub fn collect(&self, into: &mut BTreeMap<String, u64>) {
                $(into.insert($name.to_owned(), self.$field.get());)*
                into.insert("host.kept.memory_bytes".to_owned(), self.account.kept() as u64);
            }
        }
    };
}

counters! {
    datagrams_received = "host.datagrams_received",
    bytes_received = "host.bytes_received",
    datagrams_sent = "host.datagrams_sent",
    bytes_sent = "host.bytes_sent",
    packets_received = "host.packets_received",
    packets_sent = "host.packets_sent",
    connections_accepted = "host.connections_accepted",
    connections_open = "host.connections_open",
    accept_shortages = "host.accept_shortages",
    flows_opened = "host.flows_opened",
    flows_refused_backlog = "host.flows_refused.backlog",
    flows_refused_limit = "host.flows_refused.limit",
    dropped_restarting = "host.dropped.restarting",
    dropped_receive_limit = "host.dropped.receive_limit",
    dropped_send_denied = "host.dropped.send_denied",
    dropped_pass = "host.dropped.pass",
    dropped_send_too_large = "host.dropped.send_too_large",
    dropped_send_unreachable = "host.dropped.send_unreachable",
    dropped_send_buffer = "host.dropped.send_buffer",
    dropped_send_other = "host.dropped.send_other",
    dropped_to_module = "host.dropped.flow_to_module",
    dropped_to_application = "host.dropped.flow_to_application",
    dropped_log_records = "host.dropped.log_records",
    restarts = "host.restarts",
    process_calls = "host.process_calls",
    guest_time_ns = "host.guest_time_ns",
    memory_bytes = "host.memory_bytes",
    receive_calls = "host.receive_calls",
    send_calls = "host.send_calls",
}

impl Counters {
    /// Returns the usage as of now, for these sockets and this number of open flows.
    pub fn used(&self, sockets: &[String], flows: usize) -> Used {
        Used {
            sockets: sockets.to_vec(),
            memory_bytes: self.memory_bytes.get(),
            flows: u32::try_from(flows).unwrap_or(u32::MAX),
            flows_opened: self.flows_opened.get(),
            ..self.usage.used(self.guest_time_ns.get())
        }
    }
}

/// A counter. For statistics only: it orders no other memory access.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts from a gauge.
    pub fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the number as of now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
