//! The device of smoltcp's interface: one packet in, any number out.

use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::arrivals::Arrivals;
use super::numbers::Numbers;
use super::scoreboard::Scoreboard;
use super::segment::{self, SentSegment, Sequence};
use crate::{PacketSink, PeerId};

/// Carries packets between smoltcp and one peer, for one call.
pub(crate) struct Wire<'a> {
    pub mtu: usize,
    pub incoming: Option<&'a [u8]>,
    pub outgoing: Outgoing<'a>,
}

/// The destination of sent packets, and the log of their content.
pub(crate) struct Outgoing<'a> {
    pub peer: PeerId,
    pub sink: &'a mut dyn PacketSink,
    /// The buffer for one packet after the other.
    pub buffer: &'a mut Vec<u8>,
    pub log: &'a mut Log,
}

/// The content of the segments sent on one flow so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    numbers: Numbers,
    /// The window scale of smoltcp on this flow.
    pub shift: u8,
    /// The end of the announced window; `None` before the first segment.
    pub window_end: Option<Sequence>,
    /// The end of all bytes sent; `None` before the first segment.
    pub sent_end: Option<Sequence>,
    /// The last acknowledgement number sent.
    acknowledged: Option<Sequence>,
    /// The blocks that arrived beyond a gap or twice, if any.
    pub arrivals: Option<Box<Arrivals>>,
    /// The sent bytes that the peer has.
    pub received: Scoreboard,
    pub repeats: Repeats,
    /// The end of the last bytes that smoltcp wrote again.
    pub repeated: Option<Sequence>,
    /// The end of the bytes that were sent again. Segments go whole, so that it may exceed the
    /// range requested.
    pub sent_again: Option<Sequence>,
}

/// The retransmissions that may pass. smoltcp decides on retransmission without SACK, so it writes
/// everything again, and only these segments are sent.
#[derive(Debug, Default)]
pub(crate) enum Repeats {
    /// Everything that smoltcp writes, during a handshake.
    #[default]
    All,
    Nothing,
    /// The bytes in this range that the peer lacks.
    Between(Sequence, Sequence),
}

impl Log {
    /// Makes an empty log. The SYN gets the number `first`.
    pub(crate) fn new(first: Sequence) -> Self {
        Log {
            numbers: Numbers::First(first),
            ..Log::default()
        }
    }

    /// Translates the acknowledgement number of a segment for smoltcp.
    pub(crate) fn enter(&self, acknowledged: Sequence) -> Sequence {
        self.numbers.enter(acknowledged)
    }

    /// Completes a packet of smoltcp with information that smoltcp lacks. Returns true if the
    /// packet must be sent.
    fn note(&mut self, packet: &mut Vec<u8>) -> bool {
        self.numbers.leave(packet);
        let Some(said) = SentSegment::read(packet) else {
            return true;
        };
        if said.reset {
            return true;
        }
        if said.is_bare && (said.received.is_some() || self.arrivals.is_some()) {
            self.tell_arrivals(&said, packet);
        }
        let again = self.sent_end.is_some_and(|end| !said.end.is_after(end))
            && said.end.is_after(said.start)
            && !said.may_probe;
        if again {
            self.repeated = Some(said.end);
        }
        let is_due = !again || self.is_due(&said);
        if again && is_due {
            self.sent_again = Some(said.end);
        }
        let tells = self
            .acknowledged
            .is_none_or(|before| said.acknowledged.is_after(before));
        self.acknowledged = Some(said.acknowledged);
        let told = self.window_end;
        // The window of a SYN is not scaled, but smoltcp assumes that it is when it checks whether
        // a segment is in the window. This field follows its assumption.
        let window_end = said.acknowledged.plus(said.window << self.shift);
        self.window_end = Some(match self.window_end {
            // smoltcp does not remember the window in a probe, so it may still assume the one
            // before.
            Some(before) if said.may_probe => window_end.later(before),
            _ => window_end,
        });
        self.sent_end = Some(self.sent_end.map_or(said.end, |end| end.later(said.end)));
        // A segment that acknowledges or allows something new must go.
        is_due || tells || self.window_end != told
    }

    /// Puts the blocks of all arrivals into an acknowledgement.
    fn tell_arrivals(&mut self, said: &SentSegment, packet: &mut Vec<u8>) {
        let mut arrivals = self.arrivals.take().unwrap_or_default();
        arrivals.forget_before(said.acknowledged);
        if let Some(block) = said.received {
            // After a segment that filled a gap, smoltcp reports the next block, which is another
            // one.
            let answers = self.acknowledged == Some(said.acknowledged);
            arrivals.note(block, answers);
        }
        segment::set_blocks(packet, arrivals.tell());
        if !arrivals.is_empty() {
            self.arrivals = Some(arrivals);
        }
    }

    /// Returns true if a segment that was sent before must be sent again.
    fn is_due(&self, said: &SentSegment) -> bool {
        match self.repeats {
            Repeats::All => true,
            Repeats::Nothing => false,
            Repeats::Between(from, to) => {
                let touches = said.end.is_after(from) && to.is_after(said.start);
                touches && !self.received.covers(said.start, said.end)
            }
        }
    }
}

impl Device for Wire<'_> {
    type RxToken<'t>
        = Incoming<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Outgoing<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let incoming = self.incoming.take()?;
        Some((Incoming(incoming), self.outgoing.reborrow()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(self.outgoing.reborrow())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu)
    }
}

/// Disables TCP checksums in smoltcp. They are verified before a packet gets here, so that bad ones
/// are counted, and a sent segment's is filled in afterwards: see `ip::checksum`.
fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    capabilities.checksum.ipv4 = Checksum::Tx;
    capabilities.checksum.tcp = Checksum::None;
    capabilities
}

impl Outgoing<'_> {
    fn reborrow(&mut self) -> Outgoing<'_> {
        Outgoing {
            peer: self.peer,
            sink: self.sink,
            buffer: self.buffer,
            log: self.log,
        }
    }
}

/// The packet for smoltcp.
pub(crate) struct Incoming<'a>(&'a [u8]);

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        // smoltcp writes every byte of it.
        self.buffer.resize(length, 0);
        let result = write(self.buffer);
        if self.log.note(self.buffer) {
            segment::finish(self.buffer);
            self.sink.send(self.peer, self.buffer);
        }
        result
    }
}
