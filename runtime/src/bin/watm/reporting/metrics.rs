//! What modules count, for Prometheus.
//!
//! The cardinality is bounded for each listener and tunnel, whatever its module says.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use watm_runtime::PeerStatus;

/// Counters that are shown: more than any module of ours has.
const COUNTED: usize = 256;

/// Peers with numbers of their own; the bytes of all others are those of `other`.
const MEASURED: usize = 256;

/// A name that is no peer's: neither base64 nor an address.
const OTHER: &str = "other";

/// What runs in one listener or tunnel, all workers together.
#[derive(Debug)]
pub(crate) struct Group {
    /// `listener` or `tunnel`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// The module's, and the host's of it.
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) peers: Vec<PeerStatus>,
}

/// The page of these alone.
pub(crate) fn page(groups: Vec<Group>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("watm");
    registry.register_collector(Box::new(Groups(groups)));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

#[derive(Debug)]
struct Groups(Vec<Group>);

impl Collector for Groups {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&self.0, &mut encoder)
    }
}

/// What a peer's status says of one quantity, in its base unit.
type Gauge = fn(&PeerStatus) -> Option<f64>;

/// Families of what modules count, and of what they know of their peers.
pub(crate) fn encode(
    groups: &[Group],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    counters(groups, encoder)?;
    bytes(groups, encoder)?;
    let gauges: [(&str, &str, Gauge); 3] = [
        (
            "peer_last_handshake_age_seconds",
            "Since the last handshake with a peer was completed",
            |peer| peer.last_handshake.map(|age| age.as_secs_f64()),
        ),
        (
            "peer_round_trip_seconds",
            "How long the way to a peer and back takes, as estimated lately",
            |peer| peer.round_trip.map(|time| time.as_secs_f64()),
        ),
        (
            "peer_loss_ratio",
            "The share of a peer's packets that were lost lately",
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

fn counters(groups: &[Group], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "module",
        "What a module and its host count, by their names for it",
        None,
        MetricType::Gauge,
    )?;
    for group in groups {
        for (name, value) in group.counters.iter().take(COUNTED) {
            let labels = [(group.kind, &*group.name), ("counter", &**name)];
            let value = i64::try_from(*value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn bytes(groups: &[Group], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "peer_bytes",
        "Inner bytes from a peer (in) and to it (out); those of peers beyond the bound are other",
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
        assert_eq!(series("watm_module{"), COUNTED);
        assert_eq!(series("watm_peer_bytes_total{"), 2 * (MEASURED + 1));
        let other = "watm_peer_bytes_total{tunnel=\"wg0\",peer=\"other\",direction=\"in\"} 7440";
        assert!(page.contains(other), "{page}");
        assert!(page.contains("watm_peer_loss_ratio{tunnel=\"wg0\",peer=\"p0\"} 0.025"));
    }
}
