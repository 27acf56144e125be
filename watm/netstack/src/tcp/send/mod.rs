//! The sending half of a connection: its queue, what is in flight, and what may leave.
//!
//! A [`Transmitter`] writes no packets. [`Connection`](super::connection::Connection) asks it for
//! the next [range](choose::Chosen) to send, and reports acknowledgements and the time.

pub(crate) mod ack;
pub(crate) mod choose;
mod loss;
mod outstanding;
mod pacing;
mod path;
mod rack;
mod reductions;
pub(crate) mod round_trip;
mod search;
mod timeout;
mod undo;
pub(crate) mod width;

use core::time::Duration;

use watm_core::Instant;

use self::outstanding::Outstanding;
use self::pacing::Pacer;
use self::path::PathMtu;
use self::rack::Rack;
use self::reductions::Reductions;
use self::round_trip::RoundTrip;
use self::search::Search;
use self::timeout::TailProbe;
use self::undo::{Doubt, SpuriousTimeout};
use super::buffer::{Buffer, CHUNK, Pool};
use super::congestion::{Congestion, Phase, Rate};
use super::sequence::Sequence;

/// The most bytes in the queue, whose chunks are 2 MiB then: 160 Mbit/s over 100 ms.
const MOST_QUEUED: usize = (2 << 20) - CHUNK;

/// The sending half of a connection. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Transmitter {
    queue: Buffer,
    /// The first byte in the queue, and the end of the bytes in it.
    base: Sequence,
    queued_end: Sequence,
    /// True if a FIN follows the queue.
    closing: bool,
    /// SND.UNA and SND.NXT (RFC 9293 section 3.3.1).
    una: Sequence,
    next: Sequence,
    /// An acknowledgement after SND.UNA, in a segment that was not acceptable.
    unaccepted_ack: Option<Sequence>,
    window: PeerWindow,
    path: PathMtu,
    /// The search for a wider path, if segments are shorter than the path to the peer allows.
    search: Option<Box<Search>>,
    /// True if the peer reports bytes beyond a gap (SACK).
    selective: bool,
    /// The offset of the timestamp clock, if the peer echoes timestamps.
    clock: Option<u32>,
    outstanding: Outstanding,
    rate: Rate,
    trips: RoundTrip,
    rack: Rack,
    pacer: Pacer,
    congestion: Box<dyn Congestion>,
    phase: Phase,
    /// The end of the bytes in flight when the recovery began; at first the number of the SYN (RFC
    /// 6582 section 3.2 step 1).
    recover: Sequence,
    /// True if a segment may go regardless of the bytes in flight.
    urgent: bool,
    /// The number of duplicate acknowledgements of a peer that is not selective.
    duplicates: usize,
    doubt: Option<Doubt>,
    spurious: Option<SpuriousTimeout>,
    /// SND.UNA at the last undo.
    undone_at: Option<Sequence>,
    tail_probe: TailProbe,
    usage: Usage,
    /// The time since when the retransmission timer runs, and that of the last transmission.
    waiting_since: Instant,
    last_sent: Instant,
    /// The time since when the queue has waited for the peer's window, with nothing in flight.
    blocked_since: Option<Instant>,
    reductions: Reductions,
}

/// The window that the peer announced (RFC 9293 section 3.3.1).
#[derive(Debug, Clone, Copy, Default)]
struct PeerWindow {
    end: Sequence,
    /// SND.WND, SND.WL1 and SND.WL2.
    size: usize,
    by_sequence: Sequence,
    by_acknowledged: Sequence,
    /// The largest one that it ever announced.
    largest: usize,
}

/// The use of the congestion window in the current round trip, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    /// The end of the bytes in flight when the round trip began.
    until: Sequence,
    /// The most bytes in flight.
    flight: usize,
    /// True if the window had no room for another full segment.
    full: bool,
}

/// The properties of a connection when it is established.
pub(crate) struct Established {
    /// The number after the SYN.
    pub first: Sequence,
    /// The number of the peer's segment that announced the window, and the window.
    pub sequence: Sequence,
    pub window: usize,
    /// The segment size that the peer announced.
    pub peer_segment: usize,
    /// The bytes of the headers of a packet with full payload, options included.
    pub headers: usize,
    pub is_ipv4: bool,
    /// The MTU of the path to the peer.
    pub mtu: usize,
    pub selective: bool,
    pub clock: Option<u32>,
}

impl Transmitter {
    pub(crate) fn new(
        established: &Established,
        trips: RoundTrip,
        congestion: impl FnOnce(usize) -> Box<dyn Congestion>,
        now: Instant,
    ) -> Transmitter {
        let first = established.first;
        let path = PathMtu::new(established);
        Transmitter {
            queue: Buffer::default(),
            base: first,
            queued_end: first,
            closing: false,
            una: first,
            next: first,
            unaccepted_ack: None,
            window: PeerWindow {
                end: first.plus(established.window),
                size: established.window,
                by_sequence: established.sequence,
                by_acknowledged: first,
                largest: established.window,
            },
            congestion: congestion(path.segment()),
            path,
            search: None,
            selective: established.selective,
            clock: established.clock,
            outstanding: Outstanding::default(),
            rate: Rate::default(),
            trips,
            rack: Rack::default(),
            pacer: Pacer::default(),
            phase: Phase::Open,
            recover: first.minus(1),
            urgent: false,
            duplicates: 0,
            doubt: None,
            spurious: None,
            undone_at: None,
            tail_probe: TailProbe::default(),
            usage: Usage {
                until: first,
                ..Usage::default()
            },
            waiting_since: now,
            last_sent: now,
            blocked_since: None,
            reductions: Reductions::new(first),
        }
    }

    /// The number of the next new byte (SND.NXT).
    pub(crate) fn next(&self) -> Sequence {
        self.next
    }

    /// The sequence number of an acknowledgement or reset without bytes: SND.NXT, but no number
    /// that the peer's window excludes (`tcp_acceptable_seq` of Linux). If the window is closed,
    /// SND.NXT may lie after a window probe that the peer dropped. `unit` is that of the window in
    /// bytes: the peer may round its window down by less than that.
    pub(crate) fn bare_ack_sequence(&self, unit: usize) -> Sequence {
        let end = self.window.end.later(self.una);
        match end.until(self.next) {
            excess if excess < unit && end != self.una => self.next,
            _ => self.unaccepted_ack.unwrap_or(end),
        }
    }

    /// Notes the acknowledgement number of a segment that is not acceptable. A peer that took a
    /// window probe ignores numbers before the end of it. If the peer's own numbers are old too,
    /// both ends would ignore each other for good.
    pub(crate) fn note_unaccepted_ack(&mut self, acknowledged: Sequence) {
        if acknowledged.is_after(self.una) {
            self.unaccepted_ack = Some(acknowledged);
        }
    }

    /// The first unacknowledged number (SND.UNA).
    pub(crate) fn una(&self) -> Sequence {
        self.una
    }

    /// The largest window that the peer ever announced.
    pub(crate) fn largest_window(&self) -> usize {
        self.window.largest
    }

    /// The payload bytes of a full segment.
    pub(crate) fn segment(&self) -> usize {
        self.path.segment()
    }

    /// Returns true if nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.unsent() == 0
    }

    /// Returns true if the peer must acknowledge something: it has room for the first segment in
    /// flight.
    pub(crate) fn is_owed(&self) -> bool {
        let end = self.una.plus(self.segment()).earlier(self.next);
        !self.outstanding.is_empty() && !end.is_after(self.window.end)
    }

    /// Returns true if the FIN is queued and acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.closing && self.una == self.end()
    }

    /// Returns true if a range that ends here has the FIN.
    pub(crate) fn ends_at(&self, end: Sequence) -> bool {
        self.closing && end == self.end()
    }

    /// The smoothed round trip.
    pub(crate) fn round_trip(&self) -> Duration {
        self.trips.smoothed()
    }

    /// The bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.queue.held()
    }

    /// The bytes that a write of `bytes` bytes would have to borrow.
    pub(crate) fn lacks(&self, bytes: usize) -> usize {
        self.queue.lacks(self.base.until(self.queued_end), bytes)
    }

    /// The bytes that fit into the chunks held, and `borrowed` bytes more.
    pub(crate) fn fits(&self, borrowed: usize) -> usize {
        self.queue.room_after(self.base.until(self.queued_end)) + borrowed
    }

    /// The bytes that may be taken from the application: the room of the congestion window after
    /// retransmissions, in full segments or for a probe of a wider path.
    pub(crate) fn room(&self) -> usize {
        let queued = self.base.until(self.queued_end);
        let unreceived = self.in_flight() + self.outstanding.lost() + self.unsent();
        let room = self.congestion.window().saturating_sub(unreceived);
        let room = room.min(MOST_QUEUED.saturating_sub(queued));
        let room = room - room % self.segment();
        match self.due_width_probe() {
            Some(probe) if room > 0 => room.max(probe),
            _ => room,
        }
    }

    /// Appends bytes of the application.
    pub(crate) fn push(&mut self, data: &[u8], pool: &mut Pool) {
        let at = self.base.until(self.queued_end);
        self.queue.write(at, data, pool);
        self.queued_end = self.queued_end.plus(data.len());
    }

    /// Ends the stream after the queued bytes.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// The payload in pieces, and true if the FIN belongs to it, of a range to send.
    pub(crate) fn content(
        &self,
        start: Sequence,
        end: Sequence,
    ) -> (impl Iterator<Item = &[u8]>, bool) {
        let data_end = end.earlier(self.queued_end);
        let at = self.base.until(start);
        let pieces = self.queue.pieces(at, start.until(data_end));
        (pieces, end.is_after(self.queued_end))
    }

    /// Returns true if the range ends the queue, so that the peer should deliver it at once.
    pub(crate) fn pushes(&self, end: Sequence) -> bool {
        !self.queued_end.is_after(end)
    }

    /// Releases the memory.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.queue.clear(pool);
    }

    /// Records that the application has nothing more to send now, or that there is no memory for
    /// it, after everything that may leave has left.
    pub(crate) fn limited_by_application(&mut self) {
        let in_flight = self.in_flight();
        let has_room = in_flight < self.congestion.window();
        if has_room && self.unsent() == 0 && self.outstanding.lost() == 0 {
            self.rate.limit_by_application(in_flight);
        }
    }

    /// The end of everything queued, with the FIN.
    fn end(&self) -> Sequence {
        self.queued_end.plus(usize::from(self.closing))
    }

    /// The bytes that were never sent.
    fn unsent(&self) -> usize {
        self.next.until(self.end())
    }

    /// The bytes in flight. A peer that is not selective has received one segment for each
    /// duplicate acknowledgement (RFC 5681 section 3.2, RFC 3042).
    fn in_flight(&self) -> usize {
        let duplicates = self.duplicates * self.segment();
        self.outstanding.in_flight().saturating_sub(duplicates)
    }
}
