//! The messages between generations. See the documentation of the parent module for the rules.

use std::net::SocketAddr;

use watm_netstack::Protocol;

use super::wire::{Reader, Write};
use crate::floor::Initiation;
use crate::outgoing::Endpoint;

/// A peer's public key. The numbers of peers differ between generations.
pub type Key = [u8; 32];

/// A message to or from another generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A datagram of the network for one of the recipient's sessions.
    Outer { from: Endpoint, datagram: &'a [u8] },
    /// An inner packet from or to a peer, and its handling.
    Packet(Errand, Key, &'a [u8]),
    /// An event of a peer.
    Note(Note, Key),
    /// The current endpoint of a peer, and an initiation of it that must not be accepted again.
    Peer {
        key: Key,
        endpoint: Option<Endpoint>,
        initiation: Option<Initiation>,
    },
    /// A flow of the peer that the sender has.
    Flow {
        key: Key,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
    },
    /// The sender lives, and knows that the recipient serves.
    Present,
    /// The sender has no sessions any more.
    Released,
}

/// The handling of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// For the generation that has its flow.
    Inner,
    /// Back to the serving generation: its flow is not here.
    Returned,
    /// To the serving generation: it came in a session of the sender, for no flow there.
    Arrived,
    /// To the serving generation: send it to the peer.
    Send,
    /// To the generation with the newest session of the peer: send it there.
    Encrypt,
}

/// An event of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The sender has completed a handshake with the peer.
    TakenOver,
    /// The peer was removed, or its keys have changed: its flows end.
    Removed,
    /// The peer still uses the session that the recipient has taken over from.
    Unconfirmed,
    /// The peer's newest session is the sender's, although the sender does not serve.
    Holding,
}

const ERRANDS: [(u8, Errand); 5] = [
    (2, Errand::Inner),
    (3, Errand::Returned),
    (4, Errand::Arrived),
    (5, Errand::Send),
    (6, Errand::Encrypt),
];
const NOTES: [(u8, Note); 4] = [
    (7, Note::TakenOver),
    (8, Note::Removed),
    (9, Note::Unconfirmed),
    (10, Note::Holding),
];
const OUTER: u8 = 1;
const PEER: u8 = 11;
const FLOW: u8 = 12;
const PRESENT: u8 = 13;
const RELEASED: u8 = 14;

impl<'a> Message<'a> {
    /// Returns true if it carries a packet. Losing such a message loses one packet.
    pub fn carries(&self) -> bool {
        matches!(self, Message::Outer { .. } | Message::Packet(..))
    }

    /// Parses a message. `None` if the bytes are malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut reader = Reader::new(bytes);
        let kind = reader.byte()?;
        if let Some((_, errand)) = ERRANDS.iter().find(|(number, _)| *number == kind) {
            let key = *reader.array()?;
            return Some(Message::Packet(*errand, key, reader.rest()));
        }
        let message = match kind {
            OUTER => {
                let from = reader.endpoint()?;
                let datagram = reader.rest();
                return Some(Message::Outer { from, datagram });
            }
            PEER => Message::Peer {
                key: *reader.array()?,
                endpoint: reader.option(Reader::endpoint)?,
                initiation: reader.option(|reader| reader.array().copied())?,
            },
            FLOW => Message::Flow {
                key: *reader.array()?,
                protocol: reader.protocol()?,
                source: reader.socket_address()?,
                destination: reader.socket_address()?,
            },
            PRESENT => Message::Present,
            RELEASED => Message::Released,
            _ => {
                let (_, note) = NOTES.iter().find(|(number, _)| *number == kind)?;
                Message::Note(*note, *reader.array()?)
            }
        };
        reader.rest().is_empty().then_some(message)
    }

    /// Append the message's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Outer { from, datagram } => {
                out.byte(OUTER);
                out.endpoint(*from);
                out.bytes(datagram);
            }
            Message::Packet(errand, key, packet) => {
                out.byte(number(&ERRANDS, errand));
                out.bytes(key);
                out.bytes(packet);
            }
            Message::Note(note, key) => {
                out.byte(number(&NOTES, note));
                out.bytes(key);
            }
            Message::Peer {
                key,
                endpoint,
                initiation,
            } => {
                out.byte(PEER);
                out.bytes(key);
                out.option(*endpoint, Write::endpoint);
                out.option(initiation.as_ref(), |out, bytes| out.bytes(bytes));
            }
            Message::Flow {
                key,
                protocol,
                source,
                destination,
            } => {
                out.byte(FLOW);
                out.bytes(key);
                out.protocol(*protocol);
                out.socket_address(*source);
                out.socket_address(*destination);
            }
            Message::Present => out.byte(PRESENT),
            Message::Released => out.byte(RELEASED),
        }
    }
}

fn number<T: PartialEq>(table: &[(u8, T)], of: &T) -> u8 {
    let found = table.iter().find(|(_, known)| known == of);
    // The tables have every variant; the test below checks that.
    found.map_or(0, |(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let endpoint = Endpoint {
            remote: "[fe80::1%3]:51820".parse().unwrap(),
            local: Some([192, 0, 2, 1].into()),
        };
        let bare = Endpoint {
            remote: "198.51.100.1:9".parse().unwrap(),
            local: None,
        };
        let mut messages = vec![
            Message::Outer {
                from: endpoint,
                datagram: b"datagram",
            },
            Message::Peer {
                key: [1; 32],
                endpoint: Some(bare),
                initiation: Some([2; 108]),
            },
            Message::Peer {
                key: [1; 32],
                endpoint: None,
                initiation: None,
            },
            Message::Flow {
                key: [3; 32],
                protocol: Protocol::Udp,
                source: bare.remote,
                destination: "[2001:db8::1]:53".parse().unwrap(),
            },
            Message::Present,
            Message::Released,
        ];
        let errands = ERRANDS.map(|(_, errand)| Message::Packet(errand, [4; 32], b"packet"));
        let notes = NOTES.map(|(_, note)| Message::Note(note, [5; 32]));
        messages.extend(errands);
        messages.extend(notes);
        for message in messages {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(Message::parse(&bytes), Some(message.clone()));
            let cut = &bytes[..(bytes.len() - 1).min(8)];
            assert_eq!(Message::parse(cut), None, "{message:?} cut off");
            if !message.carries() {
                bytes.push(0);
                assert_eq!(Message::parse(&bytes), None, "{message:?} and more");
            }
        }
        assert_eq!(Message::parse(&[99; 40]), None);
    }
}
