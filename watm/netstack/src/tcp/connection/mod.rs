//! A connection: the state machine of RFC 9293 without an application, a clock or sockets.
//!
//! A [`Handshake`] becomes a [`Connection`]. Its owner passes it the segments of its flow
//! ([`arrive`](Connection::arrive)) and the time ([`expire`](Connection::expire)), moves the bytes
//! of the application ([`peek`](Connection::peek), [`push`](Connection::push)), and lets it
//! [`send`](Connection::send) at the end of each turn.

mod arrive;
mod challenge;
mod handshake;
mod output;
mod state;
mod timers;
mod timestamps;

use watm_core::Instant;

use self::challenge::Challenges;
pub(crate) use self::challenge::Judgement;
pub(crate) use self::handshake::{Answer, Handshake, Start};
pub(crate) use self::state::{End, State};
use self::timestamps::Timestamps;
use super::memory::Memory;
use super::receive::Receiver;
use super::send::Transmitter;
use super::sequence::Sequence;
use super::time_wait::Last;
use crate::counters::Counters;
use crate::io::Io;
use crate::table::Key;

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Connection {
    key: Key,
    state: State,
    transmitter: Transmitter,
    receiver: Receiver,
    /// The shift of the peer's window.
    scale: u8,
    timestamps: Option<Timestamps>,
    ecn: Ecn,
    /// The time of the last segment from the peer, and of the last keep-alive probe.
    heard: Instant,
    probed: Instant,
    /// The time since when the peer owes an acknowledgement, or an answer to a probe.
    unanswered_since: Option<Instant>,
    challenges: Challenges,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Debug, Clone, Copy, Default)]
struct Ecn {
    /// True if both ends know it.
    capable: bool,
    /// True if a packet was marked, and the peer has not answered that yet.
    echoes: bool,
}

/// The resources of the stack that a connection works with.
pub(crate) struct Context<'a, 'io> {
    /// The buffer for packets, one at a time.
    pub buffer: &'a mut Vec<u8>,
    pub memory: &'a mut Memory,
    pub io: &'a mut Io<'io>,
    pub counters: &'a mut Counters,
}

impl Connection {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns true if the peer has nothing more to send or to answer.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Closed(_) | State::TimeWait)
    }

    /// The bytes that the application can take at once, at most `most`.
    pub(crate) fn peek(&self, most: usize) -> &[u8] {
        self.receiver.peek(most)
    }

    /// Drops bytes that the application took.
    pub(crate) fn consume(&mut self, bytes: usize, memory: &mut Memory) {
        self.receiver.consume(bytes, memory);
    }

    /// Returns true if the peer has closed its direction and the application has taken everything.
    pub(crate) fn is_read_out(&self) -> bool {
        self.receiver.has_ended() && self.receiver.readable() == 0
    }

    /// The bytes to ask the application for now: full segments, or none.
    pub(crate) fn room(&self) -> usize {
        match self.state.may_send() {
            true => self.transmitter.room(),
            false => 0,
        }
    }

    /// The bytes of memory that a [`push`](Self::push) of `bytes` bytes needs.
    pub(crate) fn lacks(&self, bytes: usize) -> usize {
        self.transmitter.lacks(bytes)
    }

    /// The bytes of the application that fit into the chunks held, and `borrowed` bytes more.
    pub(crate) fn fits(&self, borrowed: usize) -> usize {
        self.transmitter.fits(borrowed)
    }

    /// Returns true if nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.transmitter.is_idle()
    }

    /// Queues bytes of the application.
    pub(crate) fn push(&mut self, data: &[u8], memory: &mut Memory) {
        self.transmitter.push(data, &mut memory.pool);
    }

    /// Records that the application has nothing more to send now.
    pub(crate) fn limited_by_application(&mut self) {
        self.transmitter.limited_by_application();
    }

    /// Closes the direction to the peer, after the queued bytes.
    pub(crate) fn close(&mut self) {
        self.state = self.state.closed_here();
        self.transmitter.close();
    }

    /// Grows the receive window if it limits the peer.
    pub(crate) fn grow_window(&mut self, memory: &Memory, now: Instant) {
        let trip = self.transmitter.round_trip();
        self.receiver.grow(trip, self.key.peer, memory, now);
    }

    /// Returns true if its windows are larger than those of a new connection.
    pub(crate) fn is_large(&self) -> bool {
        self.receiver.is_large()
    }

    /// Makes the windows of an idle connection small.
    pub(crate) fn shrink(&mut self) {
        self.receiver.shrink();
    }

    /// Set the MTU of the path to the peer. Returns true if there is something to send again.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        self.transmitter.set_mtu(mtu)
    }

    /// Learns from a router that packets of more than `mtu` bytes do not pass. Returns true if that
    /// changes anything.
    pub(crate) fn too_long(&mut self, mtu: usize) -> bool {
        self.transmitter.too_long(mtu)
    }

    /// Returns true if a segment that begins here may be in flight. An off-path attacker does not
    /// know that (RFC 5927 section 4.1).
    pub(crate) fn has_in_flight(&self, sequence: Sequence) -> bool {
        let (una, next) = (self.transmitter.una(), self.transmitter.next());
        !una.is_after(sequence) && next.is_after(sequence)
    }

    /// The position of both directions.
    pub(crate) fn position(&self, now: Instant) -> Last {
        Last {
            since: now,
            ours: self.transmitter.next(),
            theirs: self.receiver.next(),
            clocks: self.timestamps.map(|timestamps| timestamps.clocks),
        }
    }

    /// The bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.transmitter.held() + self.receiver.held()
    }

    /// Releases the memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.transmitter.release(&mut memory.pool);
        self.receiver.release(memory);
    }
}
