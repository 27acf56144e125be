//! Reads from sockets into shared memory, so that idle connections need none. Used by `tcp` and by
//! joined flows.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UdpSocket;

use super::options::{SEVERAL, receive_several};
use crate::ErrorCode;

/// The most bytes that one read takes, whatever a module asks for. Bounds the memory that is
/// reserved before the length is known.
const MAX_READ: usize = 256 << 10;

/// The bytes that one system call asks for: more than any datagram has.
const PIECE: usize = 64 << 10;

thread_local! {
    /// The memory for reads on this thread whose length is not known yet, so that no connection
    /// needs memory while it is idle. Pages that nothing was read into cost nothing.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE * SEVERAL]);
}

/// Lends this thread's memory for reads. Must not be called within `read`.
fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// Receives some or all waiting datagrams of a connected socket, and passes each datagram to
/// `take`. If it is pending, there is none, and `cx` is woken when there is.
pub fn poll_receive(
    socket: &UdpSocket,
    cx: &mut Context<'_>,
    mut take: impl FnMut(&[u8]),
) -> Poll<io::Result<()>> {
    with_scratch(|scratch| {
        loop {
            ready!(socket.poll_recv_ready(cx))?;
            let (mut count, mut lengths) = (0, [0; SEVERAL]);
            let received = socket.try_io(Interest::READABLE, || {
                count =
                    receive_several(socket, &mut scratch.chunks_exact_mut(PIECE), &mut lengths)?;
                // A short batch means that there are no more, which saves the next system call.
                match SEVERAL > 1 && count < SEVERAL {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(()),
                }
            });
            for (piece, length) in scratch.chunks_exact(PIECE).zip(&lengths[..count]) {
                take(&piece[..*length]);
            }
            match received {
                Err(error) if count == 0 && error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if count == 0 => return Poll::Ready(Err(error)),
                _ => return Poll::Ready(Ok(())),
            }
        }
    })
}

/// The reading side of a socket, with the rules of `byte-stream.read`.
#[derive(Default)]
pub struct Inlet {
    saw_end: bool,
    /// The error of the next read.
    failed: Option<ErrorCode>,
}

impl Inlet {
    /// Returns true if the end has been read.
    pub fn saw_end(&self) -> bool {
        self.saw_end
    }

    /// Reads what is there, up to `max` bytes; `None` at the end. After a short read `cx` is woken
    /// when there is more.
    pub fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin + ?Sized),
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        if self.saw_end {
            return Ok(None);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        with_scratch(|scratch| self.read_by(scratch, stream, max, cx))
    }

    fn read_by(
        &mut self,
        scratch: &mut [u8],
        stream: &mut (impl AsyncRead + Unpin + ?Sized),
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        let mut data = Vec::new();
        while data.len() < max {
            let ask = (max - data.len()).min(PIECE);
            let mut piece = ReadBuf::new(&mut scratch[..ask]);
            // A short read means that there is no more, which saves the next system call.
            match Pin::new(&mut *stream).poll_read(cx, &mut piece) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !piece.filled().is_empty() => {
                    data.extend_from_slice(piece.filled());
                }
                Poll::Ready(Ok(())) if data.is_empty() => {
                    self.saw_end = true;
                    return Ok(None);
                }
                Poll::Ready(Err(error)) if data.is_empty() => return Err((&error).into()),
                Poll::Ready(result) => {
                    // The end, or the error, comes with the next call, which can follow at once.
                    self.failed = result.err().map(|error| (&error).into());
                    cx.waker().wake_by_ref();
                    break;
                }
            }
            if data.len() >= MAX_READ {
                if data.len() < max {
                    cx.waker().wake_by_ref();
                }
                break;
            }
        }
        Ok(Some(data))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn datagrams_come_whole_and_in_order_however_many_there_are() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let any = (Ipv4Addr::LOCALHOST, 0);
            let near = UdpSocket::bind(any).await.expect("bound");
            let far = UdpSocket::bind(any).await.expect("bound");
            near.connect(far.local_addr().expect("bound"))
                .await
                .expect("connected");
            far.connect(near.local_addr().expect("bound"))
                .await
                .expect("connected");
            // The second round starts after the socket was told that there were no more.
            for count in [3 * SEVERAL + 1, 1, SEVERAL] {
                let sent: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; n * 300]).collect();
                for datagram in &sent {
                    far.send(datagram).await.expect("sent");
                }
                let mut received: Vec<Vec<u8>> = Vec::new();
                while received.len() < count {
                    poll_fn(|cx| {
                        poll_receive(&near, cx, |datagram| received.push(datagram.to_vec()))
                    })
                    .await
                    .expect("received");
                }
                assert_eq!(received, sent);
            }
        });
    }
}
