//! Datagram flows whose application is a socket: the module's thread uses it directly, as
//! `stream::joined` does.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::net::UdpSocket;

use super::{DatagramFlow, Shared, State, Taken};
use crate::flow::join::{JoinError, Meter};
use crate::ready::register;
use crate::sockets::poll_receive;

/// The most errors in a row before other tasks run.
const MOST_ERRORS: usize = 16;

pub(super) struct Joined {
    upstream: UdpSocket,
    meter: Arc<dyn Meter>,
    /// The datagram to send, which begins with the same bytes each time.
    whole: Vec<u8>,
    before: usize,
}

impl DatagramFlow {
    /// Makes `upstream` the application, until the flow ends. Each datagram to it is preceded by
    /// `before`. One that cannot be delivered is dropped, as on any network. Fails if the module
    /// fails. Dropping the future leaves the flow open. The flow's other calls must not be used
    /// meanwhile.
    ///
    /// The module's thread sends and receives. Datagrams that the upstream has no room for wait,
    /// within [`Limits::datagram_queue`](crate::Limits) and
    /// [`Limits::datagram_queue_bytes`](crate::Limits).
    pub async fn join(
        &self,
        upstream: UdpSocket,
        before: Vec<u8>,
        meter: Arc<dyn Meter>,
    ) -> Result<(), JoinError> {
        let joined = Joined {
            upstream,
            meter,
            before: before.len(),
            whole: before,
        };
        self.shared.lock().joined = Some(Box::new(joined));
        // Makes the module receive the upstream's datagrams.
        self.shared.token.notify();
        let _joint = Joint(&self.shared);
        poll_fn(|cx| self.shared.poll_joined(cx)).await
    }
}

/// Detaches the upstream when it is dropped.
struct Joint<'a>(&'a Shared);

impl Drop for Joint<'_> {
    fn drop(&mut self) {
        let joined = self.0.lock().joined.take();
        drop(joined);
        // The module receives from the queue again.
        self.0.token.notify();
    }
}

impl Shared {
    fn poll_joined(&self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let mut state = self.lock();
        let sent = state.poll_pass_on(cx);
        if state.error.is_some() {
            return Poll::Ready(Err(JoinError::Flow));
        }
        if sent.is_ready() && state.guest_ended {
            return Poll::Ready(Ok(()));
        }
        register(&mut state.reader, cx);
        let notify = state.write_armed && state.inbound.datagrams.len() <= state.max_datagrams / 2;
        if notify {
            state.write_armed = false;
        }
        drop(state);
        if notify {
            self.token.notify();
        }
        Poll::Pending
    }

    /// Gives the module the datagrams that the upstream has received, if there is one. Those that do
    /// not fit `taken` wait in the queue.
    pub(super) fn receive_upstream(&self, state: &mut State, taken: &mut Taken) {
        let State {
            joined, outbound, ..
        } = state;
        let Some(joined) = joined else {
            return;
        };
        let waker = Waker::from(self.token.clone());
        let mut cx = Context::from_waker(&waker);
        let mut errors = 0;
        let Joined {
            upstream, meter, ..
        } = &**joined;
        while outbound.datagrams.is_empty() && !taken.is_full() {
            let received = poll_receive(upstream, &mut cx, |datagram| {
                meter.send(datagram.len());
                // Datagrams behind a waiting one wait too.
                if !outbound.datagrams.is_empty() || !taken.take(datagram) {
                    outbound.push(datagram.to_vec());
                }
            });
            match received {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                // The error is one of a datagram sent earlier, which was not delivered.
                Poll::Ready(Err(_)) if errors < MOST_ERRORS => errors += 1,
                Poll::Ready(Err(_)) => {
                    self.token.notify();
                    return;
                }
            }
        }
    }
}

impl State {
    /// Sends the waiting datagrams to the upstream.
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(joined) = &mut self.joined
            && let Some(datagram) = self.inbound.datagrams.front()
        {
            if joined.poll_send(cx, datagram).is_pending() {
                return Poll::Pending;
            }
            self.inbound.pop();
        }
        Poll::Ready(())
    }

    /// Sends one datagram of the module's to the upstream. Returns false if there is none, or it has
    /// no room.
    pub(super) fn send_upstream(&mut self, datagram: &[u8]) -> bool {
        let Some(joined) = &mut self.joined else {
            return false;
        };
        // Waiting datagrams go first; the task sends them, and is woken when there is room.
        let mut cx = Context::from_waker(Waker::noop());
        self.inbound.datagrams.is_empty() && joined.poll_send(&mut cx, datagram).is_ready()
    }
}

impl Joined {
    fn poll_send(&mut self, cx: &mut Context<'_>, datagram: &[u8]) -> Poll<()> {
        self.whole.truncate(self.before);
        let datagram = match self.before {
            0 => datagram,
            _ => {
                self.whole.extend_from_slice(datagram);
                &self.whole[..]
            }
        };
        let mut sent = self.upstream.poll_send(cx, datagram);
        if let Poll::Ready(Err(_)) = sent {
            // The first error may belong to an earlier datagram, with this one not sent. A second
            // error means that nobody listens there now.
            sent = self.upstream.poll_send(cx, datagram);
        }
        sent.map(|_| self.meter.receive(datagram.len() - self.before))
    }
}
