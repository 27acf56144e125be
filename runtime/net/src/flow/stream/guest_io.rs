//! The module's end as a stream of tokio's, for a host whose guest has sockets. `watm-wasi` uses it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{GuestStream, StreamFlow, charge_anyway, pair};
use crate::account::Account;
use crate::quota::Permit;
use crate::ready::WakeSlot;
use crate::{ErrorCode, FlowInfo, Limits};

/// The module's end of a stream flow. Shutting it down, or dropping it, ends the flow after the data
/// that was written.
pub struct GuestIo {
    stream: GuestStream,
    waiting: Arc<Waiting>,
    failed: bool,
}

/// The tasks that wait to read and to write.
#[derive(Default)]
struct Waiting {
    reader: Arc<WakeSlot>,
    writer: Arc<WakeSlot>,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.reader.wake_by_ref();
        self.writer.wake_by_ref();
    }
}

impl GuestIo {
    /// Makes both ends of a flow, which takes this place among the open ones.
    pub fn pair(
        info: FlowInfo,
        limits: &Limits,
        permit: Permit,
        account: &Arc<Account>,
    ) -> (GuestIo, StreamFlow) {
        let waiting = Arc::<Waiting>::default();
        let charge = charge_anyway(&info, account);
        let (stream, flow) = pair(info, waiting.clone(), limits, permit, charge);
        let io = GuestIo {
            stream,
            waiting,
            failed: false,
        };
        (io, flow)
    }

    /// Notes that the module has failed: the application reads an error in place of the end.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Asks once; if there is nothing yet, registers the waker and asks again.
    fn poll<T>(
        &self,
        slot: &WakeSlot,
        cx: &Context<'_>,
        mut ask: impl FnMut(&GuestStream) -> Result<Option<T>, ErrorCode>,
    ) -> Poll<io::Result<T>> {
        let mut answer = ask(&self.stream);
        if let Ok(None) = answer {
            slot.register(cx);
            answer = ask(&self.stream);
        }
        match answer {
            Ok(Some(answer)) => Poll::Ready(Ok(answer)),
            Ok(None) => Poll::Pending,
            Err(code) => Poll::Ready(Err(code.into())),
        }
    }
}

impl AsyncRead for GuestIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unfilled = buffer.initialize_unfilled();
        let polled = self.poll(&self.waiting.reader, cx, |stream| {
            stream.read_into(unfilled)
        });
        polled.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for GuestIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(&self.waiting.writer, cx, |stream| {
            let count = stream.write_from(&[IoSlice::new(data)])?;
            Ok((count > 0).then_some(count))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.shutdown_now(false, true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for GuestIo {
    fn drop(&mut self) {
        self.stream
            .finish(self.failed.then_some(ErrorCode::ConnectionReset));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Destination;
    use crate::quota::Quota;

    fn both() -> (GuestIo, StreamFlow) {
        let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let info = FlowInfo {
            source: nowhere,
            destination: Destination::Address(nowhere),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        let permit = Quota::new(1).permit().expect("there is a place");
        let account = Arc::<Account>::default();
        account.instance_begins(1 << 20);
        GuestIo::pair(info, &Limits::default(), permit, &account)
    }

    #[tokio::test]
    async fn both_ends_read_what_the_other_has_written() {
        let (mut guest, mut flow) = both();
        let (mut read, mut heard) = ([0; 5], Vec::new());
        // Each waits for the other.
        tokio::join!(
            async {
                guest.read_exact(&mut read).await.expect("read");
                guest.write_all(b"answer").await.expect("written");
                guest.shutdown().await.expect("shut down");
            },
            async {
                flow.write_all(b"hello").await.expect("written");
                flow.read_to_end(&mut heard).await.expect("a regular end");
            }
        );
        assert_eq!((&read, heard.as_slice()), (b"hello", &b"answer"[..]));
    }

    #[tokio::test]
    async fn a_failure_is_no_regular_end() {
        for failed in [false, true] {
            let (mut guest, mut flow) = both();
            guest.write_all(b"half").await.expect("written");
            if failed {
                guest.fail();
            }
            drop(guest);
            let ended = flow.read_to_end(&mut Vec::new()).await;
            assert_eq!(ended.is_err(), failed);
        }
    }
}
