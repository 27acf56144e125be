//! The streams and datagram flows behind a guest's descriptors. `fds` holds them and `preview1`
//! reads, writes and polls them.

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

use watm_net::connect::{Wire, WireKind};

/// One end of a stream, or of a flow of datagrams.
///
/// Every `poll_` function is level-triggered: it answers for the present. If it is pending, `cx` is
/// woken when the answer may have changed.
pub(super) trait End: Send {
    /// Moves available bytes into `buffer`, which is not empty, and returns their number. 0 is the
    /// end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Takes bytes from `data`, which is not empty, and returns their number.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[IoSlice<'_>])
    -> Poll<io::Result<usize>>;

    /// Returns ready if a read would be.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness>;

    /// Returns ready if a write would be.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness>;

    /// Shuts one direction or both, at once or after what was written.
    fn shutdown(&mut self, _read: bool, _write: bool) -> io::Result<()> {
        Ok(())
    }

    /// Makes the other end see a reset once this one is dropped, unless the guest has shut the
    /// direction in which it writes.
    fn abort(&mut self) {}

    /// Returns true if somebody outside of the guest sends and receives the bytes.
    fn is_connection(&self) -> bool {
        true
    }

    /// Returns true if the other end is known to have reset the connection. Does not ask the
    /// system.
    fn is_reset(&self) -> bool {
        false
    }

    /// Continues to pass on what was written. Called whenever the guest waits.
    fn poll_background(&mut self, _: &mut Context<'_>) {}

    /// Returns ready when what was written has left this process.
    fn poll_flushed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// The result of a poll for readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Bytes that can be moved, as far as is known.
    pub(super) bytes: u64,
    /// True if the other end is gone.
    pub(super) hangup: bool,
}

impl Readiness {
    /// Makes a readiness of `bytes` that can be moved.
    pub(super) fn of(bytes: usize) -> Readiness {
        Readiness {
            bytes: bytes as u64,
            hangup: false,
        }
    }

    /// The readiness of an end or an error.
    pub(super) const HANGUP: Readiness = Readiness {
        bytes: 0,
        hangup: true,
    };
}

/// Bytes that a write to a socket usually takes, for ends that cannot tell.
const USUAL_WRITE: usize = 64 << 10;

/// One byte more than the longest datagram (RFC 768): the sender refuses it.
const TOO_LONG: usize = 1 << 16;

/// Returns the parts as one datagram. Each part may be as long as the guest's memory: bytes beyond
/// [`TOO_LONG`] are left out.
fn datagram(parts: &[IoSlice<'_>]) -> Vec<u8> {
    let mut whole = Vec::new();
    for part in parts {
        let room = TOO_LONG - whole.len();
        whole.extend_from_slice(&part[..part.len().min(room)]);
    }
    whole
}

/// Returns the guest's end of a connection. `accepted`: the other end has opened it.
pub(super) fn end_of(wire: Wire, accepted: bool) -> Box<dyn End> {
    match wire.kind {
        WireKind::Tcp(stream) => Box::new(Halves::new(tcp::Tcp::new(stream, accepted))),
        WireKind::Udp(socket) => Box::new(Halves::new(udp::Udp::new(socket))),
        WireKind::Datagrams(flow) => Box::new(Halves::new(datagrams::Datagrams::new(flow))),
        WireKind::Other(stream) => Box::new(Halves::new(buffered::Buffered::new(stream))),
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
