//! The numbers of our bytes, which are not those that smoltcp gives them: it draws its first from a
//! generator whose numbers can be foretold.

use super::segment::{self, Sequence};

/// How the numbers of a flow follow from smoltcp's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers {
    /// The SYN is to have this one. smoltcp has not written it yet.
    First(Sequence),
    /// Ours are so many ahead.
    Ahead(u32),
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers::Ahead(0)
    }
}

impl Numbers {
    /// Gives the segment in a packet that smoltcp wrote our numbers.
    pub(crate) fn leave(&mut self, packet: &mut [u8]) {
        let Some((sequence, is_syn)) = segment::sequence_of(packet) else {
            return;
        };
        if let Numbers::First(first) = *self
            && is_syn
        {
            *self = Numbers::Ahead(first.0.wrapping_sub(sequence.0));
        }
        // Before the SYN there are resets alone, whose number is from what they answer.
        if let Numbers::Ahead(by) = *self {
            segment::set_sequence(packet, Sequence(sequence.0.wrapping_add(by)));
        }
    }

    /// What smoltcp is to be told of a segment that acknowledges this.
    pub(crate) fn enter(&self, acknowledged: Sequence) -> Sequence {
        match *self {
            Numbers::First(_) => acknowledged,
            Numbers::Ahead(by) => Sequence(acknowledged.0.wrapping_sub(by)),
        }
    }
}
