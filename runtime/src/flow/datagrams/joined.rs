//! The application's end of a flow of datagrams when it is a socket, as that of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::net::UdpSocket;

use super::{DatagramFlow, Shared, State, Taken};
use crate::flow::join::{JoinError, Meter};
use crate::net::poll_receive;
use crate::ready::register;

/// Errors in a row before others have their turn.
const MOST_ERRORS: usize = 16;

pub(super) struct Joined {
    upstream: UdpSocket,
    meter: Arc<dyn Meter>,
    /// A datagram as it is sent, of which the first part is always the same.
    whole: Vec<u8>,
    before: usize,
}

impl DatagramFlow {
    /// Have `upstream` be the application, until the flow ends. Each datagram to it has `before` in
    /// front. One that cannot be delivered is lost, as on any network. Fails if the module fails.
    /// Dropping the future leaves the flow open. Meanwhile the flow's other calls are not for use.
    ///
    /// The module's thread sends and receives. What the upstream has no room for waits as far as
    /// [`Limits::datagram_queue`](crate::Limits) and
    /// [`Limits::datagram_queue_bytes`](crate::Limits) go.
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
        // It is asked for what the upstream has.
        self.shared.token.notify();
        let _joint = Joint(&self.shared);
        poll_fn(|cx| self.shared.poll_joined(cx)).await
    }
}

/// Takes the upstream away again.
struct Joint<'a>(&'a Shared);

impl Drop for Joint<'_> {
    fn drop(&mut self) {
        let joined = self.0.lock().joined.take();
        drop(joined);
        // What it receives comes out of the queue again.
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
        let notify = state.write_armed && state.inbound.datagrams.len() <= self.max_datagrams / 2;
        if notify {
            state.write_armed = false;
        }
        drop(state);
        if notify {
            self.token.notify();
        }
        Poll::Pending
    }

    /// Hand the module what the upstream has, if there is one. What goes beyond `taken` waits in the
    /// queue.
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
                // What comes after one that waits waits too.
                if !outbound.datagrams.is_empty() || !taken.take(datagram) {
                    outbound.push(datagram.to_vec());
                }
            });
            match received {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                // Of a datagram that was sent, which nobody took.
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
    /// Have the upstream take what waits for it.
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

    /// Send one datagram that the module has, if there is an upstream that has room for it.
    pub(super) fn send_upstream(&mut self, datagram: &[u8]) -> bool {
        let Some(joined) = &mut self.joined else {
            return false;
        };
        // What waits already goes first, and is the task's, which is woken when there is room.
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
            // The first error may be of an earlier datagram, and this one not sent; another: nobody
            // listens there now.
            sent = self.upstream.poll_send(cx, datagram);
        }
        sent.map(|_| self.meter.receive(datagram.len() - self.before))
    }
}
