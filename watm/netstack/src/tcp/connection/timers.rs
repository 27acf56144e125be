//! The timers of a connection: those of its halves, keep-alive, and the end of a silent peer.

use core::time::Duration;

use watm_core::Instant;

use super::{Connection, Context, End, State};

/// The silence after which a peer is probed. RFC 9293 section 3.8.4 (MUST-24, 25, 28) wants probes
/// off by default, and two hours of silence. They are always on here, because peers vanish without
/// a word and NATs forget idle flows within minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// The time for which a peer may leave something unanswered before it counts as gone: longer than
/// the 100 s of RFC 9293 section 3.8.3 (R2).
const TIMEOUT: Duration = Duration::from_secs(240);
/// The longest wait before a connection that has something in flight goes on by itself: a minute,
/// and the spread of a retransmission.
const LONGEST: Duration = Duration::from_secs(75);

impl Connection {
    /// The time of the next timer. A connection that is over waits for the application to read,
    /// which is looked at now and then.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.is_over() {
            return Some(self.silent_until());
        }
        let timers = [
            self.transmitter.deadline(now),
            self.receiver.acknowledge_at(),
            self.unanswered_since.map(|since| since + TIMEOUT),
            self.keep_alive_at(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles the timers that are due. Call [`send`](Self::send) after it.
    pub(crate) fn expire(&mut self, cx: &mut Context<'_, '_>) {
        let now = cx.io.now;
        if self.deadline(now).is_none_or(|at| at > now) {
            return;
        }
        if self.is_over() {
            self.probed = now;
            return;
        }
        if self
            .unanswered_since
            .is_some_and(|since| since + TIMEOUT <= now)
        {
            self.state = State::Closed(End::TimedOut);
            return;
        }
        self.transmitter.expire(now);
        if self.keep_alive_at().is_some_and(|at| at <= now) {
            self.probed = now;
            self.unanswered_since.get_or_insert(now);
            self.send_keep_alive(cx);
        }
    }

    /// Returns true if it has something in flight or to send, and nothing that makes it go on: a
    /// bug. Call it when everything was sent, with the result of [`deadline`](Self::deadline).
    pub(crate) fn is_stuck(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let active = !matches!(self.state, State::Closed(_)) && !self.transmitter.is_idle();
        let in_time = deadline.is_some_and(|at| at <= now + LONGEST);
        active && (!in_time || self.transmitter.is_stuck())
    }

    /// The time of a keep-alive probe. Anything in flight is a probe as well.
    fn keep_alive_at(&self) -> Option<Instant> {
        let idle = self.transmitter.is_idle();
        idle.then(|| self.silent_until())
    }

    fn silent_until(&self) -> Instant {
        self.heard.max(self.probed) + KEEP_ALIVE
    }
}
