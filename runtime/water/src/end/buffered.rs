//! A guest's end of any stream that offers neither readiness nor peeking, such as TLS.
//! `end::end_of` picks it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Readiness};
use watm_net::connect::Stream;

/// The most bytes that are read ahead to learn if there is something to read: a TLS record.
const READ_AHEAD: usize = 16 << 10;
/// The most bytes that a guest may write before the stream takes them.
const WRITE_BEHIND: usize = 64 << 10;

/// An end over any stream. Such a stream cannot be asked for readiness, only to read and to write,
/// so the end does a little of both on the guest's behalf.
pub(super) struct Buffered {
    stream: Box<dyn Stream>,
    ahead: Vec<u8>,
    /// Bytes of `ahead` that are taken already.
    taken: usize,
    /// The result that the stream gave after `ahead`: its end, or an error.
    end: Option<io::Result<()>>,
    behind: Vec<u8>,
    /// Bytes of `behind` that the stream has taken.
    passed: usize,
    flushed: bool,
    write_shut: bool,
    /// True if the stream has been shut down.
    closed: bool,
    failed: Option<io::ErrorKind>,
}

impl Buffered {
    pub(super) fn new(stream: Box<dyn Stream>) -> Buffered {
        Buffered {
            stream,
            ahead: Vec::new(),
            taken: 0,
            end: None,
            behind: Vec::new(),
            passed: 0,
            flushed: true,
            write_shut: false,
            closed: false,
            failed: None,
        }
    }

    /// Returns ready when all that was written is flushed, followed by the end if the guest shut
    /// writing.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.passed < self.behind.len() {
            let rest = &self.behind[self.passed..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.passed += count,
            }
        }
        // Frees the memory, so that an idle connection holds none.
        self.behind = Vec::new();
        self.passed = 0;
        if !self.flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.flushed = true;
        }
        if self.write_shut && !self.closed {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.closed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_some() {
            return Poll::Ready(());
        }
        if let Err(error) = ready!(self.poll_drain(cx)) {
            self.failed = Some(error.kind());
            self.behind = Vec::new();
            self.passed = 0;
        }
        Poll::Ready(())
    }

    /// Returns the stream's last result: its error once, then the end.
    fn take_end(&mut self) -> Option<io::Result<usize>> {
        let end = self.end.take()?;
        self.end = Some(Ok(()));
        Some(end.map(|()| 0))
    }
}

impl End for Buffered {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.taken < self.ahead.len() {
            let rest = &self.ahead[self.taken..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.taken += count;
            if self.taken == self.ahead.len() {
                self.ahead = Vec::new();
                self.taken = 0;
            }
            return Poll::Ready(Ok(count));
        }
        if let Some(end) = self.take_end() {
            return Poll::Ready(end);
        }
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        if count == 0 {
            self.end = Some(Ok(()));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let _ = self.drain(cx);
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        let mut room = WRITE_BEHIND.saturating_sub(self.behind.len() - self.passed);
        if room == 0 {
            return Poll::Pending;
        }
        let mut count = 0;
        for part in data {
            let step = part.len().min(room);
            self.behind.extend_from_slice(&part[..step]);
            room -= step;
            count += step;
        }
        self.flushed = false;
        let _ = self.drain(cx);
        Poll::Ready(Ok(count))
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        if self.taken == self.ahead.len() && self.end.is_none() {
            self.ahead.resize(READ_AHEAD, 0);
            self.taken = 0;
            let mut buffer = ReadBuf::new(&mut self.ahead);
            let result = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
            let count = buffer.filled().len();
            if count == 0 {
                self.ahead = Vec::new();
            } else {
                self.ahead.truncate(count);
            }
            match result {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if count > 0 => {}
                Poll::Ready(end) => self.end = Some(end),
            }
        }
        Poll::Ready(match self.ahead.len() - self.taken {
            0 => Readiness::HANGUP,
            count => Readiness::of(count),
        })
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        let _ = self.drain(cx);
        if self.failed.is_some() {
            return Poll::Ready(Readiness::HANGUP);
        }
        match WRITE_BEHIND.saturating_sub(self.behind.len() - self.passed) {
            0 => Poll::Pending,
            room => Poll::Ready(Readiness::of(room)),
        }
    }

    fn shutdown(&mut self, _: bool, write: bool) -> io::Result<()> {
        self.write_shut |= write;
        Ok(())
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) {
        let _ = self.drain(cx);
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.drain(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn what_is_asked_about_is_still_there_to_be_read() {
        run(async {
            let (near, mut far) = duplex(64);
            let mut end = Buffered::new(Box::new(near));
            far.write_all(b"hello").await.expect("taken");
            let ready = poll_fn(|cx| end.poll_readable(cx)).await;
            assert_eq!(ready, Readiness::of(5));
            let mut buffer = [0; 3];
            let count = poll_fn(|cx| end.poll_read(cx, &mut buffer)).await;
            assert_eq!((count.expect("bytes"), &buffer), (3, b"hel"));
            drop(far);
            let count = poll_fn(|cx| end.poll_read(cx, &mut buffer)).await;
            assert_eq!((count.expect("bytes"), &buffer[..2]), (2, &b"lo"[..]));
            assert_eq!(poll_fn(|cx| end.poll_readable(cx)).await, Readiness::HANGUP);
            for _ in 0..2 {
                let count = poll_fn(|cx| end.poll_read(cx, &mut buffer)).await;
                assert_eq!(count.expect("the end"), 0);
            }
        });
    }

    #[test]
    fn a_stream_that_takes_nothing_holds_up_the_guest_at_a_bound() {
        run(async {
            let (near, mut far) = duplex(10);
            let mut end = Buffered::new(Box::new(near));
            let chunk = [7; 1000];
            let mut written = 0;
            loop {
                let wrote = poll_fn(|cx| {
                    Poll::Ready(match end.poll_write(cx, &[IoSlice::new(&chunk)]) {
                        Poll::Ready(count) => Some(count.expect("taken")),
                        Poll::Pending => None,
                    })
                });
                match wrote.await {
                    Some(count) => written += count,
                    None => break,
                }
            }
            assert!((WRITE_BEHIND..WRITE_BEHIND + 100).contains(&written));
            end.shutdown(false, true).expect("shut");
            let mut got = Vec::new();
            let mut read = std::pin::pin!(far.read_to_end(&mut got));
            poll_fn(|cx| {
                end.poll_background(cx);
                read.as_mut().poll(cx)
            })
            .await
            .expect("the end");
            assert_eq!(got, vec![7; written]);
        });
    }
}
