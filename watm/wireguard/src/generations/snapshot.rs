//! The snapshot that the next generation starts from.

use std::net::SocketAddr;
use std::time::Duration;

use watm_netstack::Protocol;

use super::message::Key;
use super::wire::{Reader, Write};
use crate::floor::{Initiation, MAX_INITIATIONS};
use crate::outgoing::Endpoint;

/// The first bytes of every version of the format.
const MAGIC: &[u8; 14] = b"watm-wireguard";

/// The version of the format, and of the messages that go with it.
const VERSION: u16 = 1;

/// The knowledge of a serving generation that the next one needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The generation that made the snapshot.
    pub generation: u32,
    /// The server's key, on which the peers' sessions and initiations depend.
    pub public_key: Key,
    /// The largest lead of the dates of sent initiations over the host's clock, in nanoseconds.
    pub ahead: Option<i64>,
    /// Older generations that may still have flows or sessions.
    pub others: Vec<u32>,
    /// The peers with anything to report.
    pub peers: Vec<PeerRecord>,
    /// The open flows with their holders.
    pub flows: Vec<FlowRecord>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRecord {
    pub key: Key,
    /// A tag of the preshared key: another tag means another key.
    pub preshared_tag: [u8; 16],
    /// True if there is a session, or a handshake under way.
    pub live: bool,
    pub endpoint: Option<Endpoint>,
    /// The generation with the newest session.
    pub holder: Option<u32>,
    /// Accepted initiations, the newest among them.
    pub initiations: Vec<Initiation>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// The age of the last handshake.
    pub last_handshake: Option<Duration>,
}

/// An open flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRecord {
    pub protocol: Protocol,
    /// The index of its peer in [`Snapshot::peers`].
    pub peer: u32,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub holder: u32,
}

impl Snapshot {
    /// Encodes the snapshot.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.bytes(MAGIC);
        out.bytes(&VERSION.to_be_bytes());
        out.u32(self.generation);
        out.bytes(&self.public_key);
        out.option(self.ahead, |out, ahead| out.u64(ahead as u64));
        list(&mut out, &self.others, |out, other| out.u32(*other));
        list(&mut out, &self.peers, PeerRecord::write);
        list(&mut out, &self.flows, FlowRecord::write);
        out
    }

    /// Parses a snapshot. An error says what the bytes are instead, and what is expected.
    pub fn parse(bytes: &[u8]) -> Result<Snapshot, String> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(format!(
                "the snapshot is not that of a WireGuard server (it begins with '{}'); swap \
                 modules of the same transport only",
                bytes[..bytes.len().min(MAGIC.len())].escape_ascii()
            ));
        }
        let version = reader.array().copied().map(u16::from_be_bytes);
        if let Some(version) = version
            && version != VERSION
        {
            return Err(format!(
                "the snapshot is of version {version}, but this module reads version {VERSION}; \
                 use a module that reads version {version}, or restart"
            ));
        }
        let snapshot = Self::read(&mut reader);
        let place = bytes.len() - reader.rest().len();
        match snapshot {
            Some(_) if !reader.rest().is_empty() => Err(format!(
                "the snapshot should end at byte {place}, but has {}; it must be unchanged since \
                 the predecessor returned it",
                bytes.len()
            )),
            Some(snapshot) => Ok(snapshot),
            None => Err(format!(
                "the snapshot is invalid or truncated at byte {place}; it must be unchanged since \
                 the predecessor returned it"
            )),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Snapshot> {
        let snapshot = Snapshot {
            generation: reader.u32()?,
            public_key: *reader.array()?,
            ahead: reader.option(Reader::u64)?.map(|ahead| ahead as i64),
            others: read_list(reader, Reader::u32)?,
            peers: read_list(reader, PeerRecord::read)?,
            flows: read_list(reader, FlowRecord::read)?,
        };
        let sound = |flow: &FlowRecord| {
            (flow.peer as usize) < snapshot.peers.len()
                && flow.source.is_ipv4() == flow.destination.is_ipv4()
                && (flow.holder == snapshot.generation || snapshot.others.contains(&flow.holder))
        };
        snapshot.flows.iter().all(sound).then_some(snapshot)
    }
}

impl PeerRecord {
    fn write(out: &mut Vec<u8>, peer: &PeerRecord) {
        out.bytes(&peer.key);
        out.bytes(&peer.preshared_tag);
        out.byte(peer.live.into());
        out.option(peer.endpoint, Write::endpoint);
        out.option(peer.holder, Write::u32);
        out.byte(peer.initiations.len().min(MAX_INITIATIONS) as u8);
        for initiation in peer.initiations.iter().take(MAX_INITIATIONS) {
            out.bytes(initiation);
        }
        out.u64(peer.received_bytes);
        out.u64(peer.sent_bytes);
        out.option(peer.last_handshake, |out, age| {
            out.u64(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        });
    }

    fn read(reader: &mut Reader<'_>) -> Option<PeerRecord> {
        Some(PeerRecord {
            key: *reader.array()?,
            preshared_tag: *reader.array()?,
            live: reader.flag()?,
            endpoint: reader.option(Reader::endpoint)?,
            holder: reader.option(Reader::u32)?,
            initiations: {
                let count = usize::from(reader.byte()?);
                if count > MAX_INITIATIONS {
                    return None;
                }
                (0..count)
                    .map(|_| reader.array().copied())
                    .collect::<Option<_>>()?
            },
            received_bytes: reader.u64()?,
            sent_bytes: reader.u64()?,
            last_handshake: reader.option(Reader::u64)?.map(Duration::from_nanos),
        })
    }
}

impl FlowRecord {
    fn write(out: &mut Vec<u8>, flow: &FlowRecord) {
        out.protocol(flow.protocol);
        out.u32(flow.peer);
        out.socket_address(flow.source);
        out.socket_address(flow.destination);
        out.u32(flow.holder);
    }

    fn read(reader: &mut Reader<'_>) -> Option<FlowRecord> {
        Some(FlowRecord {
            protocol: reader.protocol()?,
            peer: reader.u32()?,
            source: reader.socket_address()?,
            destination: reader.socket_address()?,
            holder: reader.u32()?,
        })
    }
}

fn list<T>(out: &mut Vec<u8>, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.u32(items.len() as u32);
    for item in items {
        write(out, item);
    }
}

/// Reads a list. Items come from the bytes alone, so that a wrong count does not allocate a long
/// list.
fn read_list<'a, T>(
    reader: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = reader.u32()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(reader)?);
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let peer = PeerRecord {
            key: [1; 32],
            preshared_tag: [2; 16],
            live: true,
            endpoint: Some(Endpoint {
                remote: "198.51.100.1:4000".parse().unwrap(),
                local: Some("2001:db8::1".parse().unwrap()),
            }),
            holder: Some(2),
            initiations: vec![[3; 108], [4; 108]],
            received_bytes: 5,
            sent_bytes: 6,
            last_handshake: Some(Duration::from_millis(7)),
        };
        Snapshot {
            generation: 3,
            public_key: [8; 32],
            ahead: Some(-9),
            others: vec![1, 2],
            flows: vec![FlowRecord {
                protocol: Protocol::Tcp,
                peer: 1,
                source: "[fd00::1]:1000".parse().unwrap(),
                destination: "[fd00::2]:80".parse().unwrap(),
                holder: 2,
            }],
            peers: vec![
                peer.clone(),
                PeerRecord {
                    key: [7; 32],
                    endpoint: None,
                    holder: None,
                    initiations: Vec::new(),
                    last_handshake: None,
                    ..peer
                },
            ],
        }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let bytes = snapshot().write();
        assert_eq!(Snapshot::parse(&bytes), Ok(snapshot()));
    }

    #[test]
    fn what_is_not_a_snapshot_is_refused_with_what_it_is() {
        let bytes = snapshot().write();
        for end in 0..bytes.len() {
            let error = Snapshot::parse(&bytes[..end]).unwrap_err();
            assert!(error.contains("snapshot"), "{error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        let error = Snapshot::parse(&longer).unwrap_err();
        assert!(error.contains("should end at byte"), "{error}");
        let mut newer = bytes;
        newer[15] = 2;
        let error = Snapshot::parse(&newer).unwrap_err();
        assert!(error.contains("of version 2, but this module reads version 1"));
        let error = Snapshot::parse(b"shadow\xff").unwrap_err();
        assert!(error.contains("begins with 'shadow\\xff'"), "{error}");
    }

    #[test]
    fn a_flow_belongs_to_a_peer_and_a_generation_of_the_snapshot() {
        for (peer, holder, sound) in [(0, 1, true), (1, 3, true), (2, 1, false), (0, 4, false)] {
            let mut snapshot = snapshot();
            (snapshot.flows[0].peer, snapshot.flows[0].holder) = (peer, holder);
            assert_eq!(Snapshot::parse(&snapshot.write()).is_ok(), sound);
        }
    }
}
