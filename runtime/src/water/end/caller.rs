use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{End, Readiness};
use crate::account::Account;
use crate::flow::{
    CloseWatch, FlowPermit, GuestStream, StreamFlow, charge_stream_anyway, stream_pair,
};
use crate::ready::WakeSlot;
use crate::{ErrorCode, FlowInfo, Limits};

/// The application's stream, as the guest has it. Clones are the same end, which is gone
/// with the last of them.
#[derive(Clone)]
pub(in crate::water) struct Caller {
    stream: Arc<GuestStream>,
    waker: Arc<WakeSlot>,
    first_use: Arc<FirstUse>,
}

/// Tells that the guest uses the stream: a guest that waits for its other connection alone is still
/// in the handshake with whoever is there.
struct FirstUse {
    was: AtomicBool,
    /// Gone when the stream is finished, which tells that there was none.
    told: Mutex<Option<oneshot::Sender<()>>>,
}

impl Caller {
    /// Both ends, and what is sent something when the guest first uses its own.
    pub(in crate::water) fn new(
        info: FlowInfo,
        limits: &Limits,
        permit: FlowPermit,
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

    pub(in crate::water) fn watch(&self) -> CloseWatch {
        self.stream.watch()
    }

    pub(in crate::water) fn is_aborted(&self) -> bool {
        self.stream.is_aborted()
    }

    /// The last that the application gets to read, after what the guest wrote.
    pub(in crate::water) fn finish(&self, reason: Option<ErrorCode>) {
        self.stream.finish(reason);
        drop(self.first_use.take());
    }

    fn uses(&self) {
        if self.first_use.was.load(Ordering::Relaxed) {
            return;
        }
        self.first_use.was.store(true, Ordering::Relaxed);
        if let Some(told) = self.first_use.take() {
            // Nobody waits for it where there is no handshake with a client.
            let _ = told.send(());
        }
    }

    /// Ask; and if it is not so yet, ask again with a waker in place.
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
        // One closure that reads twice: the second time there was nothing the first time.
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
