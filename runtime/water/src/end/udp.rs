//! A guest's end of a connected UDP socket. `end::end_of` picks it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use super::{End, Readiness, USUAL_WRITE, datagram};

/// The number of datagrams in a row that are skipped, either because a guest could not tell them
/// from the end, or because they only report that nobody listens there now.
const MAX_SKIPPED: usize = 16;

/// A connected UDP socket: one datagram for each read, one for each write. A datagram longer than
/// the guest's buffer is truncated.
pub(super) struct Udp {
    socket: UdpSocket,
}

impl Udp {
    pub(super) fn new(socket: UdpSocket) -> Udp {
        Udp { socket }
    }
}

/// Returns true for an ICMP answer to an earlier datagram, which means no more than the loss of
/// that one.
fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

impl End for Udp {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        for _ in 0..MAX_SKIPPED {
            let mut buffer = ReadBuf::new(buffer);
            match ready!(self.socket.poll_recv(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => {}
                Ok(()) => return Poll::Ready(Ok(buffer.filled().len())),
                Err(error) if is_loss(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let whole;
        let datagram = match data {
            [data] => &data[..],
            data => {
                whole = datagram(data);
                &whole
            }
        };
        match ready!(self.socket.poll_send(cx, datagram)) {
            Err(error) if is_loss(&error) => Poll::Ready(Ok(datagram.len())),
            result => Poll::Ready(result),
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        for _ in 0..MAX_SKIPPED {
            if ready!(self.socket.poll_recv_ready(cx)).is_err() {
                return Poll::Ready(Readiness::HANGUP);
            }
            let mut byte = [0];
            match ready!(self.socket.poll_peek_from(cx, &mut ReadBuf::new(&mut byte))) {
                Ok(_) => return Poll::Ready(Readiness::of(1)),
                Err(error) if is_loss(&error) => {}
                // One such error is a datagram longer than this buffer.
                Err(_) => return Poll::Ready(Readiness::of(1)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        Poll::Ready(match ready!(self.socket.poll_send_ready(cx)) {
            Ok(()) => Readiness::of(USUAL_WRITE),
            Err(_) => Readiness::HANGUP,
        })
    }
}
