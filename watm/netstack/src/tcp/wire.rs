//! The device that smoltcp's interface works on: one packet in, any number out.

use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::arrivals::Arrivals;
use super::numbers::Numbers;
use super::scoreboard::Scoreboard;
use super::segment::{self, Said, Sequence};
use crate::{PacketSink, PeerId};

/// Carries packets between smoltcp and one peer, for one call.
pub(crate) struct Wire<'a> {
    pub mtu: usize,
    pub incoming: Option<&'a [u8]>,
    pub outgoing: Outgoing<'a>,
}

/// Where packets go, and what they said.
pub(crate) struct Outgoing<'a> {
    pub peer: PeerId,
    pub sink: &'a mut dyn PacketSink,
    /// For one packet after the other.
    pub buffer: &'a mut Vec<u8>,
    pub log: &'a mut Log,
}

/// What our segments on one flow have said so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    numbers: Numbers,
    /// By how much smoltcp shifts windows on this flow.
    pub shift: u8,
    /// Where we promised to take bytes up to; `None` before the first segment.
    pub window_end: Option<Sequence>,
    /// The end of all that was sent; `None` before the first segment.
    pub sent_end: Option<Sequence>,
    /// What we acknowledged last.
    acknowledged: Option<Sequence>,
    /// What came beyond a gap or twice, if something did.
    pub arrivals: Option<Box<Arrivals>>,
    /// What the peer has of what was sent.
    pub received: Scoreboard,
    pub repeats: Repeats,
    /// The end of what smoltcp wrote last of what was sent before.
    pub repeated: Option<Sequence>,
    /// The end of what was sent again of that. Segments go whole, so that it may be more than was to be.
    pub sent_again: Option<Sequence>,
}

/// What may be sent again. smoltcp decides that by its own lights, which do without what the peer
/// says of gaps; so it writes everything again, of which this comes through.
#[derive(Debug, Default)]
pub(crate) enum Repeats {
    /// Whatever smoltcp writes: it is a handshake.
    #[default]
    All,
    Nothing,
    /// What the peer does not have between these.
    Between(Sequence, Sequence),
}

impl Log {
    /// A log of nothing so far. The SYN will have the number `first`.
    pub(crate) fn new(first: Sequence) -> Self {
        Log {
            numbers: Numbers::First(first),
            ..Log::default()
        }
    }

    /// What smoltcp is to be told of a segment that acknowledges this.
    pub(crate) fn enter(&self, acknowledged: Sequence) -> Sequence {
        self.numbers.enter(acknowledged)
    }

    /// Completes a packet of smoltcp's with what smoltcp does not know. Whether it is to be sent.
    fn note(&mut self, packet: &mut Vec<u8>) -> bool {
        self.numbers.leave(packet);
        let Some(said) = Said::read(packet) else {
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
        // The window of a SYN is not scaled, but smoltcp takes for granted that it is when
        // it looks whether a segment is in the window. What counts here is its belief.
        let window_end = said.acknowledged.plus(said.window << self.shift);
        self.window_end = Some(match self.window_end {
            // Of a probe smoltcp does not remember what it said, so it may still believe
            // what it did before.
            Some(before) if said.may_probe => window_end.later(before),
            _ => window_end,
        });
        self.sent_end = Some(self.sent_end.map_or(said.end, |end| end.later(said.end)));
        // What acknowledges or allows something new has to go.
        is_due || tells || self.window_end != told
    }

    /// Puts the blocks of all that has arrived into an acknowledgement.
    fn tell_arrivals(&mut self, said: &Said, packet: &mut Vec<u8>) {
        let mut arrivals = self.arrivals.take().unwrap_or_default();
        arrivals.forget_before(said.acknowledged);
        if let Some(block) = said.received {
            // If the segment has filled a gap, smoltcp names the next block, which is another.
            let answers = self.acknowledged == Some(said.acknowledged);
            arrivals.note(block, answers);
        }
        segment::set_blocks(packet, arrivals.tell());
        if !arrivals.is_empty() {
            self.arrivals = Some(arrivals);
        }
    }

    /// Whether a segment that was sent before is to be sent again.
    fn is_due(&self, said: &Said) -> bool {
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

/// Checksums are verified before a packet comes here, so that bad ones are counted, and a
/// segment's is filled in after it: see `ip::checksum`.
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
