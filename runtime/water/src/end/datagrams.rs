//! A guest's end of a flow of datagrams, such as one to a destination through an upstream.
//! `end::end_of` picks it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use super::{End, Readiness, USUAL_WRITE, datagram};
use watm_net::flow::DatagramFlow;

/// A flow of datagrams: one for each read, one for each write. A datagram longer than the guest's
/// buffer is truncated.
pub(super) struct Datagrams {
    flow: DatagramFlow,
    /// A datagram that was received and not yet read.
    next: Option<Vec<u8>>,
}

impl Datagrams {
    pub(super) fn new(flow: DatagramFlow) -> Datagrams {
        Datagrams { flow, next: None }
    }

    /// Receives the next datagram and returns true, or false at the end of the flow. Skips empty
    /// datagrams, which a guest could not tell from the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.next.is_none() {
            match ready!(self.flow.poll_receive(cx)) {
                Ok(Some(datagram)) if datagram.is_empty() => {}
                Ok(Some(datagram)) => self.next = Some(datagram),
                Ok(None) => return Poll::Ready(Ok(false)),
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl End for Datagrams {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if !ready!(self.poll_next(cx))? {
            return Poll::Ready(Ok(0));
        }
        let datagram = self.next.take().unwrap_or_default();
        let count = datagram.len().min(buffer.len());
        buffer[..count].copy_from_slice(&datagram[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.flow.poll_writable(cx)).map_err(io::Error::other)?;
        let datagram = datagram(data);
        // A full queue drops it, as a network does.
        let sent = self.flow.send(&datagram).map_err(io::Error::other);
        Poll::Ready(sent.map(|_| datagram.len()))
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        Poll::Ready(match ready!(self.poll_next(cx)) {
            Ok(true) => Readiness::of(self.next.as_ref().map_or(1, Vec::len)),
            Ok(false) | Err(_) => Readiness::HANGUP,
        })
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        Poll::Ready(match ready!(self.flow.poll_writable(cx)) {
            Ok(()) => Readiness::of(USUAL_WRITE),
            Err(_) => Readiness::HANGUP,
        })
    }
}
