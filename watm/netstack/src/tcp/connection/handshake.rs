//! The handshake that opens a connection, from either side (RFC 9293 section 3.5), and the
//! negotiation of options.

use core::time::Duration;

use watm_core::Instant;

use super::challenge::{Challenges, Judgement};
use super::timestamps::Timestamps;
use super::{Connection, Context, Ecn, State};
use crate::table::Key;
use crate::tcp::clocks::{self, Clocks};
use crate::tcp::congestion::{Algorithm, Start as CongestionStart};
use crate::tcp::emit::{self, Flags, Header};
use crate::tcp::options::{TIMESTAMP_BYTES, Written};
use crate::tcp::receive::{LEAST, Receiver, SHIFT};
use crate::tcp::segment::{self, Segment};
use crate::tcp::send::round_trip::{FIRST_TIMEOUT, RoundTrip};
use crate::tcp::send::{Established, Transmitter};
use crate::tcp::sequence::Sequence;
use crate::tcp::time_wait::Last;

/// The segment size of a peer that announces none (RFC 9293 section 3.7.1).
const DEFAULT_SEGMENT: u16 = 536;
/// The least segment size that a peer can ask for. Smaller ones would cost more than they carry.
const LEAST_SEGMENT: u16 = 88;
/// The window of a SYN, which is not scaled (RFC 7323 section 2.2).
const WINDOW: u16 = u16::MAX;
/// The bound of doubling the time between two SYNs.
const LONGEST: Duration = Duration::from_secs(60);
/// The time within which a second SYN counts as crossing or duplicated, and not as a sign of loss.
/// It is shorter than either end's first timeout (RFC 6298 section 2).
const NO_LOSS_WITHIN: Duration = Duration::from_millis(500);

/// The local side of a new connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub key: Key,
    /// The number of the SYN.
    pub first: Sequence,
    /// An unpredictable number: the offset of the timestamp clock, and a seed.
    pub secret: u64,
    pub algorithm: Algorithm,
    pub now: Instant,
}

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    start: Start,
    /// True if this side opens the connection.
    dialled: bool,
    mtu: usize,
    /// The peer's SYN.
    peer: Option<PeerSyn>,
    /// The number of SYNs sent.
    tries: u32,
    /// True if one was repeated so late that the first one, or the answer to it, counts as lost.
    lost: bool,
    /// The time of the next one.
    due: Instant,
    challenges: Challenges,
}

/// The content of the peer's SYN.
#[derive(Debug, Clone, Copy)]
struct PeerSyn {
    /// The number after it.
    next: Sequence,
    window: u16,
    mss: u16,
    scale: Option<u8>,
    selective: bool,
    /// The peer's clock.
    timestamp: Option<u32>,
    ecn: bool,
}

/// The effect of a segment on a handshake.
pub(crate) enum Answer {
    /// The connection is open.
    Open(Box<Connection>),
    /// Nothing has changed.
    None,
    /// It belongs to another connection, and is answered with RST.
    Reset,
    /// The peer refuses the connection, or gives it up.
    Refused,
}

impl Handshake {
    /// Begins a connection that the peer opens with this SYN.
    pub(crate) fn accept(start: Start, syn: &Segment<'_>) -> Self {
        let ecn = Flags::ECE | Flags::CWR;
        Handshake {
            dialled: false,
            peer: Some(PeerSyn::read(syn, syn.flags.has(ecn))),
            ..Self::dial(start)
        }
    }

    /// Begins a connection to the peer.
    pub(crate) fn dial(start: Start) -> Self {
        Handshake {
            dialled: true,
            mtu: 0,
            peer: None,
            tries: 0,
            lost: false,
            due: start.now,
            challenges: Challenges::default(),
            start,
        }
    }

    /// Returns true if this side opens the connection.
    pub(crate) fn is_dialled(&self) -> bool {
        self.dialled
    }

    /// Set the MTU of the path to the peer.
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Returns true if this is the number of its SYN, and that was sent.
    pub(crate) fn has_in_flight(&self, sequence: Sequence) -> bool {
        self.tries > 0 && sequence == self.start.first
    }

    /// The time when the SYN is sent again.
    pub(crate) fn deadline(&self) -> Instant {
        self.due
    }

    /// Decides whether a segment is processed (RFC 9293 section 3.10.7.4, SYN-RECEIVED).
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: Instant) -> Judgement {
        let Some(peer) = self.peer else {
            return Judgement::Take;
        };
        // A repeated SYN gets the same answer again. A SYN that crossed the one of this end is
        // answered with an acknowledgement.
        if segment.is_syn() && segment.sequence.plus(1) == peer.next {
            return Judgement::Take;
        }
        if !segment.resets() && !segment.is_syn() {
            // A peer that uses timestamps sends none without (RFC 7323 section 3.2).
            if peer.timestamp.is_some() && segment.options.timestamp.is_none() {
                return Judgement::Ignore;
            }
            if peer.accepts(segment) {
                return Judgement::Take;
            }
        }
        self.challenges.judge(segment, peer.next, LEAST, now)
    }

    /// Sends a challenge.
    pub(crate) fn send_challenge(&self, cx: &mut Context<'_, '_>) {
        let Some(peer) = self.peer else {
            return;
        };
        let window = u16::try_from(LEAST >> peer.shift()).unwrap_or(u16::MAX);
        let last = self.position(&peer, cx.io.now);
        segment::send_acknowledgement(&self.start.key, last, window, cx.buffer, cx.io);
    }

    /// Processes a segment. An open connection has not processed its payload yet.
    pub(crate) fn arrive(&mut self, segment: &Segment<'_>, now: Instant) -> Answer {
        match self.peer {
            None => self.arrive_dialled(segment, now),
            Some(_) if segment.resets() => Answer::Refused,
            Some(ref mut peer) if segment.opens() => {
                // A peer without an answer may withdraw its offer (RFC 3168 section 6.1.1.1).
                peer.ecn &= segment.flags.has(Flags::ECE | Flags::CWR);
                self.due = now;
                Answer::None
            }
            Some(peer) => match segment.acknowledges {
                None => Answer::None,
                Some(acknowledged) if acknowledged != self.start.first.plus(1) => Answer::Reset,
                Some(_) => Answer::Open(self.establish(peer, segment, now)),
            },
        }
    }

    /// Sends the SYN if it is due.
    pub(crate) fn send(&mut self, cx: &mut Context<'_, '_>) {
        let now = cx.io.now;
        if now < self.due {
            return;
        }
        self.lost |= self.tries > 0 && now >= self.start.now + NO_LOSS_WITHIN;
        let wait = FIRST_TIMEOUT * (1 << self.tries.min(6));
        self.tries += 1;
        self.due = now + wait.min(LONGEST);
        let header = self.header(now);
        let key = &self.start.key;
        emit::segment(key, &header, [].into_iter(), cx.buffer, cx.io);
    }

    /// Ends the handshake with RST.
    pub(crate) fn abort(&mut self, cx: &mut Context<'_, '_>) {
        let Some(peer) = self.peer.filter(|_| self.tries > 0) else {
            return;
        };
        let last = self.position(&peer, cx.io.now);
        let header = Header {
            sequence: last.ours,
            acknowledged: last.theirs,
            window: 0,
            flags: Flags::RST | Flags::ACK,
            options: Written::new(),
            capable: false,
        };
        let key = &self.start.key;
        emit::segment(key, &header, [].into_iter(), cx.buffer, cx.io);
    }

    /// Processes a possible answer to the SYN of a dialled connection (RFC 9293
    /// section 3.10.7.3). Bytes on its SYN are not taken: the peer sends them again.
    fn arrive_dialled(&mut self, segment: &Segment<'_>, now: Instant) -> Answer {
        if segment.opens() {
            self.cross(segment, now);
            return Answer::None;
        }
        let answers = segment.acknowledges == Some(self.start.first.plus(1)) && self.tries > 0;
        match (answers, segment.resets()) {
            (true, true) => Answer::Refused,
            (false, true) => Answer::None,
            (false, false) if segment.acknowledges.is_some() => Answer::Reset,
            (true, false) if segment.is_syn() => {
                // The peer takes part in ECN if it answers with ECE alone (RFC 3168
                // section 6.1.1).
                let ecn = segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::CWR);
                let peer = PeerSyn::read(segment, ecn && self.offers_ecn());
                let mut connection = self.establish(peer, segment, now);
                connection.receiver.acknowledge();
                Answer::Open(connection)
            }
            _ => Answer::None,
        }
    }

    /// Accepts the SYN of a peer that opens the same connection at the same time (RFC 9293
    /// section 3.5, figure 7).
    fn cross(&mut self, syn: &Segment<'_>, now: Instant) {
        self.peer = Some(PeerSyn::read(syn, false));
        self.due = now;
    }

    /// Returns true if SYNs offer ECN: the first two do. Some networks drop them (RFC 3168
    /// section 6.1.1.1).
    fn offers_ecn(&self) -> bool {
        self.tries <= 2
    }

    fn position(&self, peer: &PeerSyn, now: Instant) -> Last {
        Last {
            since: now,
            ours: self.start.first.plus(1),
            theirs: peer.next,
            clocks: peer.timestamp.map(|recent| self.clocks(recent)),
        }
    }

    /// The header of the SYN.
    fn header(&self, now: Instant) -> Header {
        let peer = self.peer.as_ref();
        let ecn = match peer {
            Some(peer) => Flags::ECE.only_if(peer.ecn),
            None => (Flags::ECE | Flags::CWR).only_if(self.offers_ecn()),
        };
        Header {
            sequence: self.start.first,
            acknowledged: peer.map_or(Sequence(0), |peer| peer.next),
            window: WINDOW,
            flags: Flags::SYN | Flags::ACK.only_if(peer.is_some()) | ecn,
            options: self.options(now),
            capable: false,
        }
    }

    /// The options of the SYN: all, or those that the peer has offered.
    fn options(&self, now: Instant) -> Written {
        let peer = self.peer.as_ref();
        let offers = |has: fn(&PeerSyn) -> bool| peer.is_none_or(has);
        let mut options = Written::new();
        let mss = self.mtu.saturating_sub(self.ip_headers());
        options.mss(u16::try_from(mss).unwrap_or(u16::MAX));
        if offers(|peer| peer.selective) {
            options.selective();
        }
        if offers(|peer| peer.timestamp.is_some()) {
            let echo = peer.and_then(|peer| peer.timestamp);
            options.timestamp(self.clocks(echo.unwrap_or(0)).timestamp(now));
        }
        if offers(|peer| peer.scale.is_some()) {
            options.scale(SHIFT);
        }
        options
    }

    /// The clocks of both ends, with the last timestamp of the peer.
    fn clocks(&self, recent: u32) -> Clocks {
        Clocks {
            offset: self.start.secret as u32,
            recent,
        }
    }

    /// The bytes of the IP header and a TCP header without options.
    fn ip_headers(&self) -> usize {
        if self.start.key.source.is_ipv4() {
            40
        } else {
            60
        }
    }

    /// Makes the connection. `segment` completes the handshake.
    fn establish(&self, peer: PeerSyn, segment: &Segment<'_>, now: Instant) -> Box<Connection> {
        let start = &self.start;
        let timestamps = peer.timestamp.map(|recent| Timestamps {
            clocks: self.clocks(recent),
            recent_at: now,
        });
        let options = if timestamps.is_some() {
            TIMESTAMP_BYTES
        } else {
            0
        };
        let established = Established {
            first: start.first.plus(1),
            sequence: segment.sequence,
            window: usize::from(peer.window),
            peer_segment: peer.mss.into(),
            headers: self.ip_headers() + options,
            is_ipv4: start.key.source.is_ipv4(),
            mtu: self.mtu,
            selective: peer.selective,
            clock: timestamps.map(|timestamps| timestamps.clocks.offset),
        };
        let mut trips = RoundTrip::default();
        let trip = (!self.lost).then(|| now - start.now);
        match trip {
            Some(trip) => trips.measure(trip, now),
            None => trips.lost_handshake(),
        }
        let congestion = |segment| {
            start.algorithm.start(&CongestionStart {
                now,
                segment,
                round_trip: trip,
                lost_handshake: trip.is_none(),
                selective: peer.selective,
                seed: start.secret,
            })
        };
        Box::new(Connection {
            key: start.key,
            state: State::Established,
            transmitter: Transmitter::new(&established, trips, congestion, now),
            receiver: Receiver::new(
                peer.next,
                peer.shift(),
                usize::from(WINDOW),
                peer.selective,
                now,
            ),
            scale: peer.scale.unwrap_or(0),
            timestamps,
            ecn: Ecn {
                capable: peer.ecn,
                echoes: false,
            },
            heard: now,
            probed: now,
            unanswered_since: None,
            challenges: self.challenges,
        })
    }
}

impl PeerSyn {
    fn read(syn: &Segment<'_>, ecn: bool) -> Self {
        let options = &syn.options;
        PeerSyn {
            next: syn.sequence.plus(1),
            window: syn.window,
            mss: options.mss.unwrap_or(DEFAULT_SEGMENT).max(LEAST_SEGMENT),
            scale: options.scale,
            selective: options.selective,
            timestamp: options.timestamp.map(|timestamp| timestamp.value),
            ecn,
        }
    }

    /// Returns true if a segment lies in the window announced to it, and is not older than the SYN
    /// (RFC 7323 section 5.3). A segment later in the window is acceptable, because it may overtake
    /// the third one.
    fn accepts(&self, segment: &Segment<'_>) -> bool {
        let edge = self.next.plus(usize::from(WINDOW));
        let stamps = self.timestamp.zip(segment.options.timestamp);
        let old = stamps.is_some_and(|(syn, timestamp)| clocks::precedes(timestamp.value, syn));
        segment.is_in_window(self.next, edge) && !old
    }

    /// The scale of the windows announced to it.
    fn shift(&self) -> u8 {
        if self.scale.is_some() { SHIFT } else { 0 }
    }
}
