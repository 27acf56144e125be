//! Metrics of modules for Prometheus, on the pages of tunnels and `watm serve`.
//!
//! Modules and the host name their counters with parts: `streams.failed`, `host.guest_time_ns`.
//! Each name becomes one metric, by these rules:
//!
//! 1. Characters other than letters and digits become `_`, and letters lower-case. `host.…` begins
//!    with `watm_host_`, everything else with `watm_module_`.
//! 2. A last part that ends with `_ns`, `_us`, `_ms`, or the unit in full, ends with `_seconds`,
//!    and its value is in seconds. A last part that begins with `bytes_` ends with `_bytes` instead.
//! 3. A last part that is `flows`, `peers`, `open` or `memory_bytes`, or ends with `_open`, is a
//!    gauge. Everything else is a counter, and ends with `_total`.
//!
//! Names that become the same metric are added up. The cardinality is bounded for each listener and
//! tunnel, whatever its module counts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use watm_runtime::PeerStatus;

/// The most counters that are shown: more than any of the project's modules has.
const COUNTED: usize = 256;

/// The most bytes of a counter's name that become part of a metric's.
const LONGEST: usize = 100;

/// The most peers with series of their own. The bytes of all others are added to `other`.
const MEASURED: usize = 256;

/// A name that no peer has: neither base64 nor an address.
const OTHER: &str = "other";

/// Units of time in names, and the number of each in a second.
const TIMES: [(&str, f64); 6] = [
    ("_ns", 1e9),
    ("_nanoseconds", 1e9),
    ("_us", 1e6),
    ("_microseconds", 1e6),
    ("_ms", 1e3),
    ("_milliseconds", 1e3),
];

/// The status of one listener or tunnel, all workers together.
#[derive(Debug)]
pub(crate) struct Group {
    /// `listener` or `tunnel`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// Counters of the module, and of the host about it.
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) peers: Vec<PeerStatus>,
}

/// Writes a page of these groups alone.
pub(crate) fn page(groups: Vec<Group>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("watm");
    registry.register_collector(Box::new(Groups(groups)));
    written(&registry)
}

/// Writes a registry in Prometheus's text format (version 0.0.4), in which a counter's metadata
/// also has its `_total`. The library writes OpenMetrics, in which it does not.
pub(crate) fn written(registry: &Registry) -> Result<String, fmt::Error> {
    let mut open_metrics = String::new();
    text::encode(&mut open_metrics, registry)?;
    let described = |line: &'_ str| -> Option<(String, String, String)> {
        let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
        let mut word = || words.next().map(str::to_owned);
        Some((word()?, word()?, word()?))
    };
    let counters: BTreeSet<String> = open_metrics
        .lines()
        .filter_map(described)
        .filter(|(what, _, kind)| what == "TYPE" && kind == "counter")
        .map(|(_, name, _)| name)
        .collect();
    let mut page = String::new();
    for line in open_metrics.lines() {
        match described(line) {
            Some((what, name, rest)) if counters.contains(&name) => {
                page += &format!("# {what} {name}_total {rest}\n");
            }
            None if line == "# EOF" => {}
            _ => {
                page += line;
                page.push('\n');
            }
        }
    }
    Ok(page)
}

#[derive(Debug)]
struct Groups(Vec<Group>);

impl Collector for Groups {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&self.0, &mut encoder)
    }
}

/// Reads a quantity of a peer's status, in its base unit.
type Gauge = fn(&PeerStatus) -> Option<f64>;

/// Encodes the counters of modules, and their status of peers.
pub(crate) fn encode(
    groups: &[Group],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    counters(groups, encoder)?;
    bytes(groups, encoder)?;
    let gauges: [(&str, &str, Gauge); 3] = [
        (
            "peer_last_handshake_timestamp_seconds",
            "Time of the last completed handshake with a peer, in seconds since 1970",
            handshake_time,
        ),
        (
            "peer_round_trip_seconds",
            "Estimated round-trip time to a peer",
            |peer| peer.round_trip.map(|time| time.as_secs_f64()),
        ),
        (
            "peer_loss_ratio",
            "Recent share of lost packets of a peer",
            |peer| peer.loss_permille.map(|loss| f64::from(loss) / 1000.0),
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for group in groups {
            for peer in group.peers.iter().take(MEASURED) {
                if let Some(value) = value(peer) {
                    let labels = [(group.kind, &*group.name), ("peer", &*peer.name)];
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
    }
    Ok(())
}

fn handshake_time(peer: &PeerStatus) -> Option<f64> {
    let then = SystemTime::now().checked_sub(peer.last_handshake?)?;
    let since = then.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    // Rounded, so that two consecutive pages agree.
    Some(since.as_secs_f64().round())
}

/// A metric made from counters of modules.
#[derive(Debug, PartialEq)]
struct Counted {
    /// The name without `watm_`, and without a counter's `_total`.
    metric: String,
    gauge: bool,
    /// The number of the module's units in one of the metric's.
    divisor: f64,
}

impl Counted {
    /// Classifies a counter by its name, by the rules on the module's page.
    fn of(name: &str) -> Counted {
        let name = printable(name).to_ascii_lowercase();
        let (group, mut last) = match name.rsplit_once('.') {
            Some((group, last)) => (format!("{group}."), last.to_owned()),
            None => (String::new(), name.clone()),
        };
        let whole = ["flows", "peers", "open", "memory_bytes"];
        let gauge = whole.contains(&&*last) || last.ends_with("_open");
        let mut divisor = 1.0;
        if let Some((unit, count)) = TIMES.into_iter().find(|(unit, _)| last.ends_with(unit)) {
            last.truncate(last.len() - unit.len());
            last += "_seconds";
            divisor = count;
        } else if let Some(rest) = last.strip_prefix("bytes_") {
            last = format!("{rest}_bytes");
        }
        let parts = format!("{group}{last}");
        let parts = parts.strip_suffix("_total").unwrap_or(&parts);
        let owner = if parts.starts_with("host.") {
            ""
        } else {
            "module_"
        };
        Counted {
            metric: format!(
                "{owner}{}",
                parts.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
            ),
            gauge,
            divisor,
        }
    }
}

/// Cuts a module's name, and replaces characters that no metric name may have.
fn printable(name: &str) -> Cow<'_, str> {
    let cut = &name[..name.floor_char_boundary(LONGEST)];
    let strange = |c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c);
    match cut.contains(strange) {
        true => cut.replace(strange, "_").into(),
        false => cut.into(),
    }
}

/// One metric of all groups.
struct Family {
    counted: Counted,
    /// The counters that became this metric.
    names: BTreeSet<String>,
    /// Values by the index of the group.
    values: BTreeMap<usize, u64>,
}

fn counters(groups: &[Group], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut families = BTreeMap::<(String, bool), Family>::new();
    for (number, group) in groups.iter().enumerate() {
        for (name, value) in group.counters.iter().take(COUNTED) {
            let counted = Counted::of(name);
            let key = (counted.metric.clone(), counted.gauge);
            let family = families.entry(key).or_insert_with(|| Family {
                counted,
                names: BTreeSet::new(),
                values: BTreeMap::new(),
            });
            family.names.insert(printable(name).into_owned());
            let sum = family.values.entry(number).or_default();
            *sum = sum.saturating_add(*value);
        }
    }
    for Family {
        counted,
        names,
        values,
    } in families.values()
    {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let kind = if counted.gauge {
            MetricType::Gauge
        } else {
            MetricType::Counter
        };
        let help = format!("Counter {} of a module or its host", names.join(", "));
        let mut family = encoder.encode_descriptor(&counted.metric, &help, None, kind)?;
        for (number, value) in values {
            let labels = [(groups[*number].kind, &*groups[*number].name)];
            let metric = family.encode_family(&labels)?;
            // Exact up to 2^53, which is 104 days in nanoseconds, and close after that.
            let divided = *value as f64 / counted.divisor;
            match (counted.gauge, counted.divisor == 1.0) {
                (true, _) => ConstGauge::new(divided).encode(metric)?,
                (false, true) => ConstCounter::new(*value).encode(metric)?,
                (false, false) => ConstCounter::new(divided).encode(metric)?,
            }
        }
    }
    Ok(())
}

fn bytes(groups: &[Group], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "peer_bytes",
        "Inner bytes from a peer (in) and to it (out); peers beyond the limit are counted as other",
        None,
        MetricType::Counter,
    )?;
    for group in groups {
        let (own, others) = group.peers.split_at(group.peers.len().min(MEASURED));
        let sum =
            |bytes: fn(&PeerStatus) -> u64| others.iter().map(bytes).fold(0, u64::saturating_add);
        let rest = (!others.is_empty()).then(|| {
            let received = sum(|peer| peer.received_bytes);
            (OTHER, received, sum(|peer| peer.sent_bytes))
        });
        let own = own
            .iter()
            .map(|peer| (&*peer.name, peer.received_bytes, peer.sent_bytes));
        for (name, received, sent) in own.chain(rest) {
            for (direction, bytes) in [("in", received), ("out", sent)] {
                let labels = [
                    (group.kind, &*group.name),
                    ("peer", name),
                    ("direction", direction),
                ];
                ConstCounter::new(bytes).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(name: &str, bytes: u64) -> PeerStatus {
        PeerStatus {
            name: name.to_owned(),
            endpoint: None,
            last_handshake: Some(Duration::from_millis(1500)),
            received_bytes: bytes,
            sent_bytes: 2 * bytes,
            round_trip: Some(Duration::from_millis(40)),
            loss_permille: Some(25),
        }
    }

    #[test]
    fn a_thousand_peers_are_no_thousand_series() {
        let peers = (0..1000).map(|n| peer(&format!("p{n}"), 10));
        let counters = (0..1000).map(|n| (format!("count.{n}"), n));
        let group = Group {
            kind: "tunnel",
            name: "wg0".to_owned(),
            counters: counters.collect(),
            peers: peers.collect(),
        };
        let page = page(vec![group]).unwrap();
        let series = |name: &str| page.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(series("watm_peer_round_trip_seconds{"), MEASURED);
        assert_eq!(series("watm_module_count_"), COUNTED);
        assert_eq!(series("watm_peer_bytes_total{"), 2 * (MEASURED + 1));
        let other = "watm_peer_bytes_total{tunnel=\"wg0\",peer=\"other\",direction=\"in\"} 7440";
        assert!(page.contains(other), "{page}");
        assert!(page.contains("watm_peer_loss_ratio{tunnel=\"wg0\",peer=\"p0\"} 0.025"));
    }

    #[test]
    fn a_counter_is_a_metric_by_its_name() {
        for (name, metric, gauge, divisor) in [
            ("streams.failed", "module_streams_failed", false, 1.0),
            ("host.guest_time_ns", "host_guest_time_seconds", false, 1e9),
            ("host.memory_bytes", "host_memory_bytes", true, 1.0),
            ("host.flows", "host_flows", true, 1.0),
            ("host.connections_open", "host_connections_open", true, 1.0),
            ("host.flows_opened", "host_flows_opened", false, 1.0),
            ("wireguard.peers", "module_wireguard_peers", true, 1.0),
            (
                "wireguard.bytes_sent",
                "module_wireguard_sent_bytes",
                false,
                1.0,
            ),
            (
                "wireguard.round_trip_microseconds",
                "module_wireguard_round_trip_seconds",
                false,
                1e6,
            ),
            ("Some-Total_total", "module_some_total", false, 1.0),
            ("a\n# b\"}", "module_a___b__", false, 1.0),
        ] {
            let expected = Counted {
                metric: metric.to_owned(),
                gauge,
                divisor,
            };
            assert_eq!(Counted::of(name), expected, "{name}");
        }
        assert!(Counted::of(&"ä".repeat(1000)).metric.len() < 2 * LONGEST);
    }

    #[test]
    fn names_that_become_one_metric_are_added_up() {
        let group = |name: &str| Group {
            kind: "listener",
            name: name.to_owned(),
            counters: vec![("a.b".to_owned(), 1), ("a-b".to_owned(), 2)],
            peers: Vec::new(),
        };
        let page = page(vec![group("one"), group("two")]).unwrap();
        for expected in [
            "# HELP watm_module_a_b_total Counter a-b, a.b of a module or its host\n",
            "# TYPE watm_module_a_b_total counter\n",
            "watm_module_a_b_total{listener=\"one\"} 3\n",
            "watm_module_a_b_total{listener=\"two\"} 3\n",
        ] {
            assert_eq!(page.matches(expected).count(), 1, "{expected}{page}");
        }
    }
}
