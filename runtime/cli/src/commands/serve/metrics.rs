//! Metrics of `watm serve`, for Prometheus.
//!
//! The cardinality is bounded: listeners by the configuration, reasons by their kinds, clients by
//! `metrics.clients`, and counters of modules as for [tunnels](crate::reporting::metrics).

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::clients::Clients;
use super::outcome::Ending;
use crate::reporting::metrics::{self, Group};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfListener {
    listener: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    listener: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDirection {
    listener: String,
    direction: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    listener: String,
    result: String,
}

/// The metrics of all listeners.
pub(super) struct Metrics {
    registry: Mutex<Registry>,
    opened: Family<OfListener, Counter>,
    open: Family<OfListener, Gauge>,
    closed: Family<OfReason, Counter>,
    bytes: Family<OfDirection, Counter>,
    connect: Family<OfListener, Histogram, fn() -> Histogram>,
    upstream_failures: Family<OfListener, Counter>,
    omitted_records: Family<OfListener, Counter>,
    swaps: Family<OfResult, Counter>,
    modules: Arc<Modules>,
}

/// The metrics of one listener.
#[derive(Clone)]
pub(super) struct ListenerMetrics {
    listener: String,
    opened: Counter,
    open: Gauge,
    closed: Family<OfReason, Counter>,
    pub(super) received: Counter,
    pub(super) sent: Counter,
    connect: Histogram,
    upstream_failures: Counter,
    omitted_records: Counter,
    swaps: Family<OfResult, Counter>,
}

impl Metrics {
    pub(super) fn new(clients: Arc<Clients>) -> Metrics {
        let metrics = Metrics {
            registry: Mutex::default(),
            opened: Family::default(),
            open: Family::default(),
            closed: Family::default(),
            bytes: Family::default(),
            connect: Family::new_with_constructor(|| {
                // A millisecond to eight seconds.
                Histogram::new(exponential_buckets(0.001, 2.0, 14))
            }),
            upstream_failures: Family::default(),
            omitted_records: Family::default(),
            swaps: Family::default(),
            modules: Arc::default(),
        };
        let mut registry = Registry::with_prefix("watm");
        registry.register(
            "connections",
            "Connections accepted by a module",
            metrics.opened.clone(),
        );
        registry.register("connections_open", "Open connections", metrics.open.clone());
        registry.register(
            "connections_closed",
            "Closed connections, by reason",
            metrics.closed.clone(),
        );
        registry.register(
            "bytes",
            "Bytes from clients (in) and to them (out)",
            metrics.bytes.clone(),
        );
        registry.register(
            "connect_seconds",
            "Time to connect to the upstream",
            metrics.connect.clone(),
        );
        registry.register(
            "upstream_failures",
            "Failed connections to the upstream",
            metrics.upstream_failures.clone(),
        );
        registry.register(
            "connection_records_omitted",
            "Connections that ended without a log record, because too many ended",
            metrics.omitted_records.clone(),
        );
        registry.register(
            "swaps",
            "Swaps of modules and configurations while running, by result",
            metrics.swaps.clone(),
        );
        registry.register_collector(Box::new(ByClient(clients)));
        registry.register_collector(Box::new(metrics.modules.clone()));
        *metrics.lock() = registry;
        metrics
    }

    pub(super) fn listener(&self, name: &str) -> ListenerMetrics {
        let listener = OfListener {
            listener: name.to_owned(),
        };
        let bytes = |direction: &str| {
            self.bytes.get_or_create_owned(&OfDirection {
                listener: name.to_owned(),
                direction: direction.to_owned(),
            })
        };
        ListenerMetrics {
            listener: name.to_owned(),
            opened: self.opened.get_or_create_owned(&listener),
            open: self.open.get_or_create_owned(&listener),
            closed: self.closed.clone(),
            received: bytes("in"),
            sent: bytes("out"),
            connect: self.connect.get_or_create_owned(&listener),
            upstream_failures: self.upstream_failures.get_or_create_owned(&listener),
            omitted_records: self.omitted_records.get_or_create_owned(&listener),
            swaps: self.swaps.clone(),
        }
    }

    /// Writes the page, with the current counters of the modules.
    pub(super) fn page(&self, modules: Vec<Group>) -> Result<String, fmt::Error> {
        *self.modules.0.lock().expect("no panic under this lock") = modules;
        metrics::written(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().expect("no panic under this lock")
    }
}

impl ListenerMetrics {
    pub(super) fn opened(&self) {
        self.opened.inc();
        self.open.inc();
    }

    pub(super) fn closed(&self, ending: Ending) {
        self.open.dec();
        let reason = OfReason {
            listener: self.listener.clone(),
            reason: ending.name().to_owned(),
        };
        self.closed.get_or_create(&reason).inc();
    }

    pub(super) fn connected(&self, after: Duration) {
        self.connect.observe(after.as_secs_f64());
    }

    pub(super) fn upstream_fails(&self) {
        self.upstream_failures.inc();
    }

    pub(super) fn omits_record(&self) {
        self.omitted_records.inc();
    }

    pub(super) fn swapped(&self, well: bool) {
        let result = OfResult {
            listener: self.listener.clone(),
            result: if well { "done" } else { "refused" }.to_owned(),
        };
        self.swaps.get_or_create(&result).inc();
    }
}

struct ByClient(Arc<Clients>);

impl fmt::Debug for ByClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByClient").finish_non_exhaustive()
    }
}

impl Collector for ByClient {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "client_bytes",
            "Bytes from a client (in) and to it (out); clients beyond the limit are counted as \
             other",
            None,
            MetricType::Counter,
        )?;
        for (client, received, sent) in self.0.bytes() {
            for (direction, bytes) in [("in", received), ("out", sent)] {
                let labels = [("client", &*client), ("direction", direction)];
                let metric = family.encode_family(&labels)?;
                ConstCounter::new(bytes).encode(metric)?;
            }
        }
        Ok(())
    }
}

/// The counters of the listeners' modules.
#[derive(Debug, Default)]
struct Modules(Mutex<Vec<Group>>);

impl Collector for Modules {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let groups = self.0.lock().expect("no panic under this lock");
        metrics::encode(&groups, &mut encoder)
    }
}
