//! The arrival of a segment on a synchronized connection (RFC 9293 section 3.10.7.4).

use watm_core::Instant;

use super::{Connection, Context, End, State};
use crate::tcp::emit::Flags;
use crate::tcp::receive::Intake;
use crate::tcp::segment::Segment;
use crate::tcp::send::ack::Acknowledgement;

impl Connection {
    /// Processes a segment that [`judge`](Self::judge) lets through. Returns true if it passed all
    /// checks, and its payload was taken.
    pub(crate) fn arrive(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        let now = cx.io.now;
        // First: timestamp and sequence number.
        if !self.check_timestamp(segment, now) {
            return false;
        }
        if !self.receiver.accepts(segment) {
            self.answer_unacceptable(segment, cx);
            return false;
        }
        // Second and fourth: RST. SYNs are judged before. In TIME-WAIT it changes nothing (RFC
        // 1337).
        if segment.resets() {
            if !self.is_over() {
                self.state = State::Closed(End::Reset);
            }
            return false;
        }
        // Fifth: ACK.
        let Some(acknowledged) = segment.acknowledges else {
            return false;
        };
        if !self.is_plausible(acknowledged) {
            self.correct(now);
            return false;
        }
        self.remember(segment, now);
        self.take_marks(segment);
        self.take_acknowledgement(segment, cx);
        self.heard(now);
        // Seventh: the text.
        if self.exceeds_end(segment) {
            cx.counters.tcp_malformed += 1;
            return false;
        }
        if !segment.payload.is_empty() && !self.take_payload(segment, cx) {
            return false;
        }
        self.count_several(segment);
        // Eighth: FIN.
        if segment.ends() {
            self.receiver.note_end(segment.payload_end());
        }
        if self.receiver.take_end(self.state.may_send(), now) {
            self.state = self.state.closed_there();
        }
        true
    }

    /// Takes a segment that differs from the one before in its payload alone: the steps of
    /// [`arrive`](Self::arrive) that have an effect then. Returns false if another step may have
    /// one.
    pub(crate) fn go_on(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        if self.is_over()
            || !self
                .receiver
                .expects(segment.sequence, segment.payload.len())
        {
            return false;
        }
        let (now, peer) = (cx.io.now, self.key.peer);
        let (start, payload) = (segment.sequence, segment.payload);
        if self.receiver.take(start, payload, peer, cx.memory, now) != Intake::Taken {
            return false;
        }
        self.heard(now);
        self.count_several(segment);
        if let Some(acknowledged) = segment.acknowledges {
            self.transmitter
                .repeats_window(segment.sequence, acknowledged);
        }
        true
    }

    /// Demands an acknowledgement after several segments in one (RFC 5681 section 4.2).
    fn count_several(&mut self, segment: &Segment<'_>) {
        if segment.several {
            self.receiver.acknowledge();
        }
    }

    /// Demands an acknowledgement for a segment whose numbers are not acceptable.
    fn answer_unacceptable(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) {
        let now = cx.io.now;
        let plausible = segment.acknowledges.filter(|to| self.is_plausible(*to));
        if let Some(acknowledged) = plausible {
            self.transmitter.note_unaccepted_ack(acknowledged);
        }
        if self.is_bare_probe(segment) {
            self.answer_probe(now);
        } else if segment.length() == 0 || self.exceeds_end(segment) {
            self.correct(now);
        } else {
            // It repeats something, or exceeds the window.
            if plausible.is_some() {
                self.heard(now);
                self.remember_repetition(segment, now);
            }
            self.take_payload(segment, cx);
            self.receiver.acknowledge();
        }
    }

    /// Returns true if the segment is a keep-alive or a window probe without bytes, as Linux sends
    /// them (RFC 9293 sections 3.8.4 and 3.8.6.1).
    pub(super) fn is_bare_probe(&self, segment: &Segment<'_>) -> bool {
        segment.is_bare() && segment.sequence == self.receiver.next().minus(1)
    }

    /// Returns true if the segment has bytes after the peer's FIN. They are ignored (RFC 9293
    /// section 3.10.7.4).
    fn exceeds_end(&self, segment: &Segment<'_>) -> bool {
        self.receiver.has_ended() && segment.payload_end().is_after(self.receiver.next())
    }

    /// Records that the peer is there. It may still owe an acknowledgement, which nothing else
    /// replaces (RFC 9293 section 3.8.3).
    fn heard(&mut self, now: Instant) {
        self.heard = now;
        if !self.transmitter.is_owed() {
            self.unanswered_since = None;
        }
    }

    /// Takes the marks of congestion on the way here (RFC 3168 section 6.1.3).
    fn take_marks(&mut self, segment: &Segment<'_>) {
        if !self.ecn.capable {
            return;
        }
        if segment.flags.has(Flags::CWR) {
            self.ecn.echoes = false;
        }
        if segment.marked && !segment.payload.is_empty() {
            self.ecn.echoes = true;
            self.receiver.acknowledge();
        }
    }

    fn take_acknowledgement(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) {
        let Some(to) = segment.acknowledges else {
            return;
        };
        let echo = segment.options.timestamp.map(|timestamp| timestamp.echo);
        let acknowledgement = Acknowledgement {
            to,
            sequence: segment.sequence,
            window: usize::from(segment.window) << self.scale,
            is_bare: segment.is_bare(),
            blocks: segment.options.blocks(),
            // An echo of 0 may stand for none, as in Linux.
            echo: echo.filter(|echo| *echo != 0),
            congested: self.ecn.capable && segment.flags.has(Flags::ECE),
        };
        let una = self.transmitter.una();
        let pool = &mut cx.memory.pool;
        self.transmitter
            .acknowledge(&acknowledgement, pool, cx.io.now);
        if self.transmitter.una() != una {
            self.unanswered_since = Some(cx.io.now);
        }
        if self.transmitter.is_finished() {
            self.state = self.state.acknowledged();
        }
    }

    /// Takes the payload. Returns false if it was dropped.
    fn take_payload(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        let intake = self.receiver.take(
            segment.sequence,
            segment.payload,
            self.key.peer,
            cx.memory,
            cx.io.now,
        );
        match intake {
            Intake::Taken => return true,
            Intake::BeyondWindow => cx.counters.tcp_beyond_buffer += 1,
            Intake::NoMemory => cx.counters.tcp_no_memory += 1,
            Intake::TooManyGaps => cx.counters.tcp_too_many_gaps += 1,
        }
        false
    }
}
