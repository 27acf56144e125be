//! Sequence numbers of sent bytes. They differ from smoltcp's, whose first comes from a predictable
//! generator.

use super::segment::{self, Sequence};

/// The translation from smoltcp's numbers to those of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers {
    /// The number of the SYN, which smoltcp has not written yet.
    First(Sequence),
    /// The distance of the flow's numbers from smoltcp's.
    Ahead(u32),
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers::Ahead(0)
    }
}

impl Numbers {
    /// Replaces smoltcp's sequence number in a packet that it wrote.
    pub(crate) fn leave(&mut self, packet: &mut [u8]) {
        let Some((sequence, is_syn)) = segment::sequence_of(packet) else {
            return;
        };
        if let Numbers::First(first) = *self
            && is_syn
        {
            *self = Numbers::Ahead(first.0.wrapping_sub(sequence.0));
        }
        // Only resets precede the SYN, and their number comes from the segments that they answer.
        if let Numbers::Ahead(by) = *self {
            segment::set_sequence(packet, Sequence(sequence.0.wrapping_add(by)));
        }
    }

    /// Translates the acknowledgement number of a segment for smoltcp.
    pub(crate) fn enter(&self, acknowledged: Sequence) -> Sequence {
        match *self {
            Numbers::First(_) => acknowledged,
            Numbers::Ahead(by) => Sequence(acknowledged.0.wrapping_sub(by)),
        }
    }
}
