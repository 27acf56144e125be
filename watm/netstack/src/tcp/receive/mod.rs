//! The receiving half of a connection: the bytes that arrived, the window, and what the next
//! acknowledgement says.

mod acknowledge;
mod arrivals;
mod window;

use watm_core::Instant;

use self::acknowledge::AckTimer;
use self::arrivals::Arrivals;
use self::window::Window;
use super::buffer::Buffer;
use super::memory::Memory;
use super::segment::Segment;
use super::sequence::{Block, Sequence};
use crate::PeerId;

pub(crate) use self::window::{LEAST, SHIFT};

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Buffer,
    /// The number of the next byte for the application, at the beginning of the buffer.
    taken: Sequence,
    /// The next number that is expected (RCV.NXT).
    next: Sequence,
    /// True if the peer's FIN has arrived, with everything before it.
    ended: bool,
    /// The number of a FIN that has arrived before the bytes in front of it.
    end: Option<Sequence>,
    arrivals: Option<Box<Arrivals>>,
    window: Window,
    acknowledgement: AckTimer,
    /// True if the peer takes reports on blocks.
    selective: bool,
}

/// The treatment of a segment's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    /// It was taken, or was there already. It will be acknowledged.
    Taken,
    /// It lies beyond the window. The acknowledgement says so.
    BeyondWindow,
    /// There is no memory for it. It is dropped silently.
    NoMemory,
    /// There are too many gaps before it. It is dropped, and the acknowledgement reports others.
    TooManyGaps,
}

impl Receiver {
    /// Makes the receiving half of a connection whose peer's first byte is `next`. `shift` is the
    /// scale of announced windows, and `announced` the window of the SYN.
    pub(crate) fn new(
        next: Sequence,
        shift: u8,
        announced: usize,
        selective: bool,
        now: Instant,
    ) -> Self {
        Receiver {
            buffer: Buffer::default(),
            taken: next,
            next,
            ended: false,
            end: None,
            arrivals: None,
            window: Window::new(next.plus(announced), shift, now),
            acknowledgement: AckTimer::new(next),
            selective,
        }
    }

    /// The next number that is expected (RCV.NXT).
    pub(crate) fn next(&self) -> Sequence {
        self.next
    }

    /// Returns true if the peer's FIN has arrived, with everything before it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The bytes that the application can take.
    pub(crate) fn readable(&self) -> usize {
        self.taken.until(self.data_end())
    }

    /// The bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// The bytes that the application can take at once, at most `most`.
    pub(crate) fn peek(&self, most: usize) -> &[u8] {
        self.buffer.piece(0, most.min(self.readable()))
    }

    /// Drops bytes that the application took.
    pub(crate) fn consume(&mut self, bytes: usize, memory: &mut Memory) {
        self.taken = self.taken.plus(bytes);
        self.buffer.skip(bytes, &mut memory.pool);
        self.window.taken(bytes);
        if self.readable() == 0 && self.holds_nothing_later() {
            self.buffer.clear(&mut memory.pool);
        }
    }

    /// Returns true if a segment lies in the window with any of its numbers.
    pub(crate) fn accepts(&self, segment: &Segment<'_>) -> bool {
        segment.is_in_window(self.next, self.window.end().later(self.next))
    }

    /// Returns true if this many bytes with this number come next, with nothing missing before them
    /// or known behind them, and fit into the window.
    pub(crate) fn expects(&self, start: Sequence, bytes: usize) -> bool {
        start == self.next
            && self.arrivals.is_none()
            && !self.ended
            && self.end.is_none()
            && bytes <= self.room()
    }

    /// Takes the payload of a segment.
    pub(crate) fn take(
        &mut self,
        start: Sequence,
        payload: &[u8],
        peer: PeerId,
        memory: &mut Memory,
        now: Instant,
    ) -> Intake {
        let end = start.plus(payload.len());
        if self.selective && !payload.is_empty() {
            self.note_twice(start, end);
        }
        if !end.is_after(self.next) {
            self.acknowledgement.at_once();
            return Intake::Taken;
        }
        if end.is_after(self.window.end()) {
            self.acknowledgement.at_once();
            return Intake::BeyondWindow;
        }
        let in_order = !start.is_after(self.next);
        if !in_order && !self.has_room((start, end)) {
            self.acknowledgement.at_once();
            return Intake::TooManyGaps;
        }
        let skipped = start.until(self.next);
        let at = self.taken.until(start.plus(skipped));
        let payload = &payload[skipped..];
        let lacks = self.buffer.lacks(at, payload.len());
        if lacks > 0 && !memory.grants(peer, lacks) {
            return Intake::NoMemory;
        }
        self.buffer.write(at, payload, &mut memory.pool);
        match in_order {
            true => self.arrived_in_order(end, now),
            false => self.arrived_early((start, end)),
        }
        Intake::Taken
    }

    /// Remembers the number of a FIN. One that is early, or was there before, is acknowledged at
    /// once.
    pub(crate) fn note_end(&mut self, number: Sequence) {
        if self.ended || number != self.next {
            self.acknowledgement.at_once();
        }
        if !self.ended && !self.next.is_after(number) {
            // If two FINs claim different ends, the earlier one holds, unless bytes pass it.
            self.end = Some(self.end.map_or(number, |end| end.earlier(number)));
        }
    }

    /// Takes a FIN once everything before it has arrived. Returns true if it does so now. With
    /// `answered`, its acknowledgement may wait for the answer of the application, which most often
    /// closes its direction too.
    pub(crate) fn take_end(&mut self, answered: bool, now: Instant) -> bool {
        if self.ended || self.end != Some(self.next) {
            return false;
        }
        self.ended = true;
        self.next = self.next.plus(1);
        self.arrivals = None;
        match answered {
            true => self.acknowledgement.arrived(now),
            false => self.acknowledgement.at_once(),
        }
        true
    }

    /// Releases the memory.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.buffer.clear(&mut memory.pool);
    }

    fn arrived_in_order(&mut self, end: Sequence, now: Instant) {
        self.next = end;
        if let Some(arrivals) = &mut self.arrivals {
            let filled = !arrivals.has_no_blocks();
            self.next = arrivals.take_from(end);
            if filled || arrivals.has_unreported_duplicate() {
                self.acknowledgement.at_once();
            }
            self.drop_empty_arrivals();
        }
        // A FIN number that bytes have passed was false.
        self.end = self.end.filter(|end| !self.next.is_after(*end));
        self.acknowledgement.arrived(now);
    }

    fn arrived_early(&mut self, block: Block) {
        self.arrivals.get_or_insert_default().insert(block);
        self.acknowledgement.at_once();
    }

    /// Forgets the arrivals if they have nothing left to report.
    fn drop_empty_arrivals(&mut self) {
        self.arrivals.take_if(|arrivals| arrivals.is_empty());
    }

    fn has_room(&self, block: Block) -> bool {
        let arrivals = self.arrivals.as_ref();
        arrivals.is_none_or(|arrivals| arrivals.has_room(block))
    }

    /// Records bytes between `start` and `end` that arrived before.
    fn note_twice(&mut self, start: Sequence, end: Sequence) {
        let before = || Some((start, end.earlier(self.next))).filter(|_| self.next.is_after(start));
        let beyond = || self.arrivals.as_ref()?.known((start, end));
        if let Some(twice) = before().or_else(beyond) {
            self.arrivals.get_or_insert_default().note_twice(twice);
        }
    }

    fn holds_nothing_later(&self) -> bool {
        let arrivals = self.arrivals.as_ref();
        arrivals.is_none_or(|arrivals| arrivals.has_no_blocks())
    }

    /// The end of the bytes in order, without the FIN.
    fn data_end(&self) -> Sequence {
        self.next.minus(usize::from(self.ended))
    }
}
