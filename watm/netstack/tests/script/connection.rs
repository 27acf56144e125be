//! A connection of a script: both sides' numbers, the application's bytes, and the rules that every
//! packet of the stack must keep.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use watm_core::Instant;

use super::segment::{ACK, FIN, RST, SYN, Segment};
use crate::support::{Application, StreamEnd};

/// The byte at an offset of a direction.
pub fn pattern(offset: i64) -> u8 {
    (offset.rem_euclid(251)) as u8
}

/// The MSS of a peer below which a stack may bound it.
const TINY: i64 = 64;

/// One connection. Numbers are relative to the SYN of their side.
#[derive(Clone)]
pub struct Connection {
    pub theirs: SocketAddr,
    pub ours: SocketAddr,
    pub their_first: u32,
    pub our_first: Option<u32>,
    /// The next number of the peer, its last acknowledgement, and its window in bytes.
    pub seq: i64,
    pub ack: i64,
    pub win: i64,
    /// The right end of the peer's window, at most.
    pub their_edge: i64,
    pub their_mss: i64,
    /// The scale that each side announced in its SYN.
    pub their_scale: Option<u8>,
    pub our_scale: Option<u8>,
    /// The peer's timestamp clock: its value at a time, in milliseconds.
    pub their_clock: Option<(u32, Instant)>,
    pub timestamps: bool,
    /// The stack's last TSval.
    pub our_clock: u32,
    /// The end of all that the stack sent, and its last acknowledgement.
    pub nxt: i64,
    pub rcv: i64,
    /// The right end of the stack's window.
    pub edge: i64,
    /// The number behind the peer's FIN.
    pub their_end: Option<i64>,
    /// The index of the first stream that may belong to it.
    since: usize,
    dialled: Option<StreamEnd>,
    /// The bytes written by the application, and those of them that are no pattern.
    pub written: i64,
    pub texts: Vec<(i64, Vec<u8>)>,
    pub read: i64,
    pub endless: bool,
    pub closed: bool,
    /// The identifications of packets that routers may fragment.
    pub identifications: BTreeSet<u16>,
}

impl Connection {
    pub fn new(theirs: SocketAddr, ours: SocketAddr, first: u32, since: usize) -> Connection {
        Connection {
            theirs,
            ours,
            their_first: first,
            our_first: None,
            seq: 0,
            ack: 0,
            win: 65535,
            their_edge: 0,
            their_mss: 536,
            their_scale: None,
            our_scale: None,
            their_clock: None,
            timestamps: false,
            our_clock: 0,
            nxt: 0,
            rcv: 0,
            edge: 0,
            their_end: None,
            since,
            dialled: None,
            written: 0,
            texts: Vec::new(),
            read: 0,
            endless: false,
            closed: false,
            identifications: BTreeSet::new(),
        }
    }

    pub fn dialled(theirs: SocketAddr, ours: SocketAddr, first: u32, stream: StreamEnd) -> Self {
        Connection {
            dialled: Some(stream),
            ..Connection::new(theirs, ours, first, 0)
        }
    }

    /// The application's end, once the stack has offered the flow.
    pub fn stream(&self, app: &Application) -> Option<StreamEnd> {
        let own = |stream: &&StreamEnd| {
            let info = stream.info();
            info.source == self.theirs && info.destination == self.ours.into()
        };
        let streams = app.streams().get(self.since..).unwrap_or_default();
        self.dialled
            .clone()
            .or_else(|| streams.iter().find(own).cloned())
    }

    pub fn has_ports_of(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let unknown = self.ours.port() == 0 && from.ip() == self.ours.ip();
        to == self.theirs && (from == self.ours || unknown)
    }

    /// A number of the stack, relative to its SYN.
    pub fn our_number(&self, number: u32) -> i64 {
        i64::from(number.wrapping_sub(self.our_first.unwrap_or(0)) as i32)
    }

    /// A number of the peer, relative to its SYN.
    pub fn their_number(&self, number: u32) -> i64 {
        i64::from(number.wrapping_sub(self.their_first) as i32)
    }

    pub fn absolute_ours(&self, number: i64) -> u32 {
        self.our_first.unwrap_or(0).wrapping_add(number as u32)
    }

    pub fn absolute_theirs(&self, number: i64) -> u32 {
        self.their_first.wrapping_add(number as u32)
    }

    /// The shift of the windows that the peer announces.
    pub fn their_shift(&self) -> u8 {
        self.our_scale
            .and(self.their_scale)
            .map_or(0, |scale| scale.min(14))
    }

    /// The shift of the windows that the stack announces.
    pub fn our_shift(&self) -> u8 {
        self.their_scale
            .and(self.our_scale)
            .map_or(0, |scale| scale.min(14))
    }

    /// The byte that the application wrote at an offset.
    fn content(&self, offset: i64) -> u8 {
        let text = self
            .texts
            .iter()
            .find(|(start, text)| (*start..*start + text.len() as i64).contains(&offset));
        match text {
            Some((start, text)) => text[(offset - start) as usize],
            None => pattern(offset),
        }
    }

    /// Takes note of a packet that the stack sent, and checks what holds for every one.
    pub fn note(&mut self, segment: &Segment, length: usize, mtu: usize) -> Result<(), String> {
        if length > mtu {
            return Err(format!(
                "a packet of {length} bytes exceeds the MTU of {mtu}"
            ));
        }
        if segment.has(RST) {
            return Ok(());
        }
        if segment.has(SYN) {
            self.note_syn(segment)?;
        }
        if let Some((value, _)) = segment.options.timestamps {
            self.our_clock = value;
        }
        if segment.has(ACK) {
            self.note_window(segment)?;
        }
        self.note_bytes(segment)
    }

    fn note_syn(&mut self, segment: &Segment) -> Result<(), String> {
        if self
            .our_first
            .is_some_and(|first| first != segment.sequence)
        {
            return Err("a SYN with another number than before".into());
        }
        self.our_first = Some(segment.sequence);
        self.our_scale = segment.options.scale;
        let answers = segment.has(ACK);
        self.timestamps =
            segment.options.timestamps.is_some() && (!answers || self.their_clock.is_some());
        if answers && self.their_scale.is_none() && segment.options.scale.is_some() {
            return Err("a window scale that the peer did not offer".into());
        }
        if answers && self.their_clock.is_none() && segment.options.timestamps.is_some() {
            return Err("timestamps that the peer did not offer".into());
        }
        Ok(())
    }

    fn note_window(&mut self, segment: &Segment) -> Result<(), String> {
        let rcv = self.their_number(segment.acknowledges);
        if rcv < self.rcv {
            return Err(format!("ack {rcv} after ack {}", self.rcv));
        }
        self.rcv = rcv;
        let shift = if segment.has(SYN) {
            0
        } else {
            self.our_shift()
        };
        let edge = rcv + (i64::from(segment.window) << shift);
        // A scaled window is rounded down. After the end there is nothing to receive.
        let ended = self.their_end.is_some_and(|end| rcv >= end);
        if edge + (1 << shift) <= self.edge && !ended {
            return Err(format!("the window's end {edge} is before {}", self.edge));
        }
        self.edge = self.edge.max(edge);
        Ok(())
    }

    fn note_bytes(&mut self, segment: &Segment) -> Result<(), String> {
        let start = self.our_number(segment.sequence);
        let first = start + i64::from(segment.has(SYN));
        let end = first + segment.payload.len() as i64;
        let fin = end + i64::from(segment.has(FIN));
        // A stack may ignore a tiny MSS.
        let most = if self.their_mss < TINY {
            536
        } else {
            self.their_mss
        };
        if segment.payload.len() as i64 > most {
            let length = segment.payload.len();
            return Err(format!("{length} bytes exceed the MSS of {most}"));
        }
        let probes = segment.payload.len() == 1;
        if end > self.their_edge.max(1) && !probes && !segment.payload.is_empty() {
            let edge = self.their_edge;
            return Err(format!("bytes until {end} exceed the window's end {edge}"));
        }
        // A keep-alive may carry a byte of garbage before the next number (RFC 9293 section 3.8.4).
        if !(probes && end <= self.ack.max(1)) {
            for (offset, byte) in (first - 1..).zip(&segment.payload) {
                if *byte != self.content(offset) || offset >= self.written {
                    return Err(format!("the byte at {} was not written", offset + 1));
                }
            }
        }
        self.nxt = self.nxt.max(fin);
        Ok(())
    }
}
