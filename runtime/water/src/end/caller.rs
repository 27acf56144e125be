//! A guest's end of the application's stream. `runner` hands it to the guest and `worker` finishes
//! it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{End, Readiness};
use crate::{ErrorCode, FlowInfo, Limits};
use watm_net::account::Account;
use watm_net::flow::{CloseWatch, GuestStream, StreamFlow, charge_stream_anyway, stream_pair};
use watm_net::quota::Permit;
use watm_net::ready::WakeSlot;

/// The guest's end of the application's stream. Clones are the same end; dropping the last one
/// closes it.
#[derive(Clone)]
pub(crate) struct Caller {
    stream: Arc<GuestStream>,
    waker: Arc<WakeSlot>,
    first_use: Arc<FirstUse>,
}

/// Reports the guest's first use of the stream. A guest that waits only for its other connection is
/// still in the handshake with its client.
struct FirstUse {
    was: AtomicBool,
    /// The sender of the report. Dropped when the stream is finished, which tells that there was no
    /// use.
    told: Mutex<Option<oneshot::Sender<()>>>,
}

impl Caller {
    /// Returns both ends, and a receiver that fires when the guest first uses its own.
    pub(crate) fn new(
        info: FlowInfo,
        limits: &Limits,
        permit: Permit,
        account: &Arc<Account>,
    ) -> (Caller, StreamFlow, oneshot::Receiver<()>) {
        let waker = Arc::new(WakeSlot::default());
        let charge = charge_stream_anyway(&info, account);
        let (stream, flow) = stream_pair(info, waker.clone(), limits, permit, charge);
        let (told, used) = oneshot::channel();
        let caller = Caller {
            stream: Arc::new(stream),
            waker,
            first_use: Arc::new(FirstUse {
                was: AtomicBool::new(false),
                told: Mutex::new(Some(told)),
            }),
        };
        (caller, flow, used)
    }

    pub(crate) fn watch(&self) -> CloseWatch {
        self.stream.watch()
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.stream.is_aborted()
    }

    /// Ends the stream for the application, after what the guest wrote: with the end, or with
    /// `reason`.
    pub(crate) fn finish(&self, reason: Option<ErrorCode>) {
        self.stream.finish(reason);
        drop(self.first_use.take());
    }

    fn uses(&self) {
        if self.first_use.was.load(Ordering::Relaxed) {
            return;
        }
        self.first_use.was.store(true, Ordering::Relaxed);
        if let Some(told) = self.first_use.take() {
            // The report is only awaited where there is a handshake with a client.
            let _ = told.send(());
        }
    }

    /// Asks once; if there is nothing yet, registers the waker and asks again.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        ask: impl Fn(&GuestStream) -> Result<Option<T>, ErrorCode>,
    ) -> Poll<io::Result<T>> {
        self.uses();
        let mut answer = ask(&self.stream);
        if let Ok(None) = answer {
            self.waker.register(cx);
            answer = ask(&self.stream);
        }
        match answer {
            Ok(Some(answer)) => Poll::Ready(Ok(answer)),
            Ok(None) => Poll::Pending,
            Err(code) => Poll::Ready(Err(code.into())),
        }
    }
}

impl FirstUse {
    fn take(&self) -> Option<oneshot::Sender<()>> {
        self.told.lock().expect("no panic under this lock").take()
    }
}

impl End for Caller {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        // One closure serves both reads: it runs again only if the first time there was nothing.
        let buffer = std::cell::RefCell::new(buffer);
        self.poll(cx, |stream| stream.read_into(&mut buffer.borrow_mut()))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream| {
            let count = stream.write_from(data)?;
            Ok((count > 0).then_some(count))
        })
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        self.poll(cx, GuestStream::readable).map(|ready| {
            let (bytes, last) = ready.unwrap_or((0, true));
            Readiness {
                bytes: bytes as u64,
                hangup: last,
            }
        })
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        let room = self.poll(cx, |stream| {
            let room = stream.writable()?;
            Ok((room > 0).then_some(room))
        });
        room.map(|room| room.map_or(Readiness::HANGUP, Readiness::of))
    }

    fn shutdown(&mut self, read: bool, write: bool) -> io::Result<()> {
        self.uses();
        self.stream.shutdown_now(read, write);
        Ok(())
    }
}
