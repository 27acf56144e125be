//! Sending: segments with payload, acknowledgements, keep-alives and resets.

use super::{Connection, Context, End, State};
use crate::tcp::emit::{self, Flags, Header, Train};
use crate::tcp::options::Written;
use crate::tcp::send::choose::Chosen;
use crate::tcp::sequence::Sequence;

impl Connection {
    /// Sends what may leave, at most `left` segments, and then the acknowledgement that is due. An
    /// acknowledgement with a report leaves before, because segments with payload have no blocks.
    pub(crate) fn send(&mut self, left: &mut usize, cx: &mut Context<'_, '_>) {
        let now = cx.io.now;
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        if self.receiver.must_report() {
            self.send_acknowledgement(cx);
        }
        while *left > 0
            && let Some(chosen) = self.transmitter.choose(*left, now)
        {
            let segments = self.send_range(&chosen, cx);
            self.transmitter.sent(&chosen, now);
            *left = left.saturating_sub(segments);
            self.unanswered_since.get_or_insert(now);
        }
        self.transmitter.wait_for_window(now);
        if self
            .receiver
            .must_acknowledge(self.transmitter.segment(), now)
        {
            self.send_acknowledgement(cx);
        }
    }

    /// Sends an acknowledgement at once if the next segment would replace what it reports.
    pub(crate) fn report_duplicate(&mut self, cx: &mut Context<'_, '_>) {
        if self.receiver.has_unreported_duplicate() {
            self.send_acknowledgement(cx);
        }
    }

    /// Sends a bare acknowledgement with its report.
    pub(crate) fn send_acknowledgement(&mut self, cx: &mut Context<'_, '_>) {
        let mut header = self.header(self.bare_ack_sequence(), Flags::ACK, cx);
        self.receiver.tell_blocks(&mut header.options);
        emit::segment(&self.key, &header, [].into_iter(), cx.buffer, cx.io);
    }

    /// The sequence number of a segment without bytes.
    fn bare_ack_sequence(&self) -> Sequence {
        self.transmitter.bare_ack_sequence(1 << self.scale)
    }

    /// Ends the connection with RST (RFC 9293 section 3.10.5).
    pub(crate) fn abort(&mut self, cx: &mut Context<'_, '_>) {
        if !self.is_over() {
            let sequence = self.bare_ack_sequence();
            let header = self.header(sequence, Flags::RST | Flags::ACK, cx);
            emit::segment(&self.key, &header, [].into_iter(), cx.buffer, cx.io);
        }
        self.state = State::Closed(End::Reset);
    }

    /// Asks whether the peer is there (RFC 9293 section 3.8.4).
    pub(super) fn send_keep_alive(&mut self, cx: &mut Context<'_, '_>) {
        let header = self.header(self.transmitter.next().minus(1), Flags::ACK, cx);
        emit::segment(&self.key, &header, [].into_iter(), cx.buffer, cx.io);
    }

    /// Sends a range in segments. Returns their number.
    fn send_range(&mut self, chosen: &Chosen, cx: &mut Context<'_, '_>) -> usize {
        let mut header = self.header(chosen.start, Flags::ACK, cx);
        // Retransmissions and window probes are not ECN-capable (RFC 3168 sections 6.1.5 and
        // 6.1.6).
        header.capable = self.ecn.capable && !chosen.again && !chosen.is_window_probe;
        header.flags = header.flags | Flags::CWR.only_if(chosen.reduced && self.ecn.capable);
        let segment = chosen.segment;
        let unfinished = cx.io.sink.finishes(self.key.peer);
        let mut train = Train::new(&self.key, &header, cx.buffer);
        train.set_identification(self.transmitter.take_identifications(chosen));
        let mut start = chosen.start;
        let mut segments = 0;
        while chosen.end.is_after(start) {
            let length = match unfinished {
                // The sink divides the whole range.
                true => chosen.start.until(chosen.end),
                false => segment,
            };
            let mut end = start.plus(length).earlier(chosen.end);
            // The FIN belongs to the last segment.
            if end.until(chosen.end) == 1 && self.transmitter.ends_at(chosen.end) {
                end = chosen.end;
            }
            let (payload, ends) = self.transmitter.content(start, end);
            let pushes = self.transmitter.pushes(end);
            let flags = header.flags | Flags::PSH.only_if(pushes) | Flags::FIN.only_if(ends);
            match unfinished {
                true => train.send_unfinished(start, flags, payload, segment, cx.io),
                false => train.send(start, flags, payload, cx.io),
            }
            header.flags = header.flags.without(Flags::CWR);
            segments += start.until(end).div_ceil(segment);
            start = end;
        }
        segments
    }

    /// The header of a segment that leaves now, with the acknowledgement.
    fn header(&mut self, sequence: Sequence, flags: Flags, cx: &Context<'_, '_>) -> Header {
        let (acknowledged, window) = self.receiver.tell(self.transmitter.segment());
        let mut options = Written::new();
        if let Some(timestamp) = self.timestamp(cx.io.now) {
            options.timestamp(timestamp);
        }
        Header {
            sequence,
            acknowledged,
            window,
            flags: flags | Flags::ECE.only_if(self.ecn.echoes),
            options,
            capable: false,
        }
    }
}
