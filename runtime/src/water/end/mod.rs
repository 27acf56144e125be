//! What a guest's descriptors of streams stand for.

mod buffered;
mod caller;
mod control;
mod datagrams;
mod halves;
mod tcp;
mod udp;

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

pub(super) use caller::Caller;
pub(super) use control::Control;
use halves::Halves;

use crate::roles::{Wire, WireKind};

/// One end of a stream, or of a flow of datagrams.
///
/// Every `poll_` function is level-triggered: it answers for the present, and if it is
/// pending, `cx` is woken when the answer may be another one.
pub(super) trait End: Send {
    /// Move what is there into `buffer`, which is not empty. 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Take from `data`, which is not empty; how much.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[IoSlice<'_>])
    -> Poll<io::Result<usize>>;

    /// Ready if a read would be.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness>;

    /// Ready if a write would be.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness>;

    /// End one direction or both, at once or after what was written.
    fn shutdown(&mut self, _read: bool, _write: bool) -> io::Result<()> {
        Ok(())
    }

    /// Have the other end see a reset once this one is dropped, unless the guest has shut the
    /// direction in which it writes.
    fn abort(&mut self) {}

    /// Whether somebody outside of the guest sends and receives the bytes.
    fn is_connection(&self) -> bool {
        true
    }

    /// Whether the other end has reset the connection, as far as is known without asking.
    fn is_reset(&self) -> bool {
        false
    }

    /// Go on with what was written. Called whenever the guest waits.
    fn poll_background(&mut self, _: &mut Context<'_>) {}

    /// Ready when what was written is out of this process's hands.
    fn poll_flushed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Bytes that can be moved, as far as is known.
    pub(super) bytes: u64,
    /// The other end is gone.
    pub(super) hangup: bool,
}

impl Readiness {
    /// `bytes` can be moved.
    pub(super) fn of(bytes: usize) -> Readiness {
        Readiness {
            bytes: bytes as u64,
            hangup: false,
        }
    }

    /// An end or an error can be had.
    pub(super) const HANGUP: Readiness = Readiness {
        bytes: 0,
        hangup: true,
    };
}

/// What a write to a socket usually takes, where nothing tells.
const USUAL_WRITE: usize = 64 << 10;

/// One byte more than the length of a datagram can be (RFC 768): who is to send it refuses it.
const TOO_LONG: usize = 1 << 16;

/// Returns the parts as one datagram. They may be as long as the guest's memory, each of them: what
/// is beyond [`TOO_LONG`] is left out.
fn datagram(parts: &[IoSlice<'_>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for part in parts {
        let room = TOO_LONG - whole.len();
        whole.extend_from_slice(&part[..part.len().min(room)]);
    }
    whole
}

impl Wire {
    /// `accepted`: the other end has opened it.
    pub(super) fn into_end(self, accepted: bool) -> Box<dyn End> {
        match self.kind {
            WireKind::Tcp(stream) => Box::new(Halves::new(tcp::Tcp::new(stream, accepted))),
            WireKind::Udp(socket) => Box::new(Halves::new(udp::Udp::new(socket))),
            WireKind::Datagrams(flow) => Box::new(Halves::new(datagrams::Datagrams::new(flow))),
            WireKind::Other(stream) => Box::new(Halves::new(buffered::Buffered::new(stream))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_datagram_and_no_more_of_them_is_copied() {
        let parts = [&b"one"[..], b"", b"two"].map(IoSlice::new);
        assert_eq!(datagram(&parts), b"onetwo");
        let large = vec![7; 40_000];
        let whole = datagram(&[IoSlice::new(&large); 16]);
        assert_eq!(whole.len(), TOO_LONG);
        assert!(whole.capacity() <= 2 * TOO_LONG);
    }
}
