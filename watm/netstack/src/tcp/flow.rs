//! A flow: one TCP connection, and the application's stream. [`Tcp`](super::Tcp) owns the flows.

use std::time::Duration;

use watm_core::{ByteStream, Direction, ErrorCode, FlowInfo, Instant, Token};

use super::connection::{Answer, Connection, Context, End, Handshake, Judgement, Start, State};
use super::memory::Memory;
use super::segment::Segment;
use super::sequence::Sequence;
use super::time_wait::Last;
use crate::table::Key;
use crate::timer::Alarm;

/// The most bytes taken from the application in one call; more gains nothing.
const CHUNK: usize = 256 << 10;
/// The segments that one flow sends before the next has its turn: 90 KB, one train.
const BUDGET: usize = 64;

/// The time for which a peer may continue sending after the application has closed both directions.
/// Its bytes are acknowledged and dropped. RFC 9293 section 3.6.1 (SHLD-3) recommends RST at once,
/// as Linux sends it. That can take the last bytes of the application from a peer that has not read
/// them yet.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);
/// The time without traffic after which the windows of a flow return to the initial size.
const IDLE: Duration = Duration::from_secs(10);
/// The time in which a peer must answer the SYNs of a dialled flow: some six of them. RFC 9293
/// section 3.8.3 (MUST-23) demands three minutes. The application learns of a failure earlier here,
/// and dials again itself if it wants to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// One TCP connection and the application's stream.
pub(crate) struct Flow {
    key: Key,
    token: Token,
    link: Link,
    application: Application,
    /// The bytes of this flow that [`Memory`] has counted.
    accounted: usize,
    /// The time of the first SYN, received or sent.
    pub since: Instant,
    /// The time when bytes last moved.
    moved: Instant,
    orphaned: Option<Instant>,
    flags: Flags,
    pub alarm: Alarm,
    /// True if the flow is in the list of flows with something to do.
    pub dirty: bool,
    /// True if the flow is in the queue for memory.
    pub starved: bool,
}

/// The protocol's side of a flow.
enum Link {
    Handshake(Box<Handshake>),
    Connection(Box<Connection>),
    /// The handshake failed.
    Failed,
}

/// The application's side of a flow.
enum Application {
    /// Offered as a flow when the handshake is complete.
    Asked(Box<FlowInfo>),
    Open(Box<dyn ByteStream>),
    /// Done: the application has let go of the flow.
    Done,
}

#[derive(Debug, Default)]
struct Flags {
    /// The application may have bytes.
    readable: bool,
    /// The token was ready since the application was last asked for bytes. It may have aborted the
    /// flow.
    called: bool,
    /// The application takes no more bytes until its token is ready.
    blocked: bool,
    /// The application has closed its side.
    closed: bool,
    /// The application was told that the peer has closed.
    told: bool,
    /// The application has stopped reading.
    deaf: bool,
}

/// The next step of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for a packet, a token or the deadline.
    Wait,
    /// Continue: it has more to send than its turn allowed.
    Again,
    /// Wait for memory.
    Starved,
    /// Forget it, except for its end: both sides are done.
    Ended(Last),
    /// Forget it.
    Gone,
}

enum Collected {
    /// Everything that there is, or that fits.
    All,
    NoMemory,
    /// The application has aborted the flow.
    Aborted,
}

impl Flow {
    /// Makes a flow for this SYN.
    pub(crate) fn accepted(start: Start, token: Token, info: FlowInfo, syn: &Segment<'_>) -> Flow {
        let application = Application::Asked(Box::new(info));
        Flow::new(start, token, application, Handshake::accept(start, syn))
    }

    /// Makes a dialled flow. Its SYN leaves when the flow is first served.
    pub(crate) fn dialled(start: Start, token: Token, mut stream: Box<dyn ByteStream>) -> Flow {
        stream.connecting();
        let application = Application::Open(stream);
        Flow::new(start, token, application, Handshake::dial(start))
    }

    fn new(start: Start, token: Token, application: Application, handshake: Handshake) -> Flow {
        Flow {
            key: start.key,
            token,
            link: Link::Handshake(Box::new(handshake)),
            application,
            accounted: 0,
            since: start.now,
            moved: start.now,
            orphaned: None,
            flags: Flags::default(),
            alarm: Alarm::default(),
            dirty: false,
            starved: false,
        }
    }

    /// Set the MTU of the path to the peer. Returns true if there is something to do.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        match &mut self.link {
            Link::Handshake(handshake) => {
                handshake.set_mtu(mtu);
                false
            }
            Link::Connection(connection) => connection.set_mtu(mtu),
            Link::Failed => false,
        }
    }

    /// Learns from a router that packets of more than `mtu` bytes do not pass. Returns true if that
    /// changes anything.
    pub(crate) fn too_long(&mut self, mtu: usize) -> bool {
        match &mut self.link {
            Link::Connection(connection) => connection.too_long(mtu),
            Link::Handshake(_) | Link::Failed => false,
        }
    }

    /// Returns true if it was not offered to the application yet.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.application, Application::Asked(_))
    }

    /// Returns true if the peer has not completed its handshake.
    pub(crate) fn is_in_handshake(&self) -> bool {
        matches!(self.link, Link::Handshake(_))
    }

    /// Returns true if the connection is closed.
    pub(crate) fn is_over(&self) -> bool {
        match &self.link {
            Link::Handshake(_) => false,
            Link::Connection(connection) => matches!(connection.state(), State::Closed(_)),
            Link::Failed => true,
        }
    }

    /// Returns true if a segment that begins here may be in flight.
    pub(crate) fn has_in_flight(&self, sequence: u32) -> bool {
        let sequence = Sequence(sequence);
        match &self.link {
            Link::Handshake(handshake) => handshake.has_in_flight(sequence),
            Link::Connection(connection) => connection.has_in_flight(sequence),
            Link::Failed => false,
        }
    }

    /// Decides whether a segment is processed.
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: Instant) -> Judgement {
        match &mut self.link {
            Link::Handshake(handshake) => handshake.judge(segment, now),
            Link::Connection(connection) => connection.judge(segment, now),
            Link::Failed => Judgement::Ignore,
        }
    }

    /// Answers a segment that [`judge`](Self::judge) challenges. The answer of an open connection
    /// is an ordinary acknowledgement, with its window and its SACK blocks.
    pub(crate) fn challenge(&mut self, cx: &mut Context<'_, '_>) {
        match &mut self.link {
            Link::Handshake(handshake) => handshake.send_challenge(cx),
            Link::Connection(connection) => connection.send_acknowledgement(cx),
            Link::Failed => {}
        }
    }

    /// Process a segment of this flow. Call it with one that [`judge`](Self::judge) lets through.
    /// Returns true if it passed all checks of a connection, and its payload was taken.
    pub(crate) fn ingress(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        let mut took = false;
        if let Link::Handshake(handshake) = &mut self.link {
            let dialled = handshake.is_dialled();
            let answer = handshake.arrive(segment, cx.io.now);
            self.answered(answer, segment, cx);
            if dialled {
                self.connected();
            }
            if segment.is_syn() {
                return false;
            }
        }
        if let Link::Connection(connection) = &mut self.link {
            connection.report_duplicate(cx);
            took = connection.arrive(segment, cx);
        }
        self.account(cx.memory);
        took
    }

    /// Takes a segment that differs from the one before in its payload alone. Returns false, and
    /// changes nothing, if that must be [processed](Self::ingress) in full.
    pub(crate) fn go_on(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        let Link::Connection(connection) = &mut self.link else {
            return false;
        };
        let lent = cx.memory.pool.lent();
        let took = connection.go_on(segment, cx);
        if cx.memory.pool.lent() != lent {
            self.account(cx.memory);
        }
        took
    }

    /// Handle a ready token: the application may take or have more.
    pub(crate) fn ready(&mut self) {
        self.flags.readable = true;
        self.flags.called = true;
        self.flags.blocked = false;
    }

    /// Deliver the received bytes to the application, and do nothing else.
    pub(crate) fn hand_over(&mut self, cx: &mut Context<'_, '_>) {
        self.deliver(cx);
        self.account(cx.memory);
    }

    /// Move bytes both ways as far as possible.
    pub(crate) fn service(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        let verdict = self.work(cx);
        self.account(cx.memory);
        verdict
    }

    fn work(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        if self.was_aborted() {
            return self.abort(cx);
        }
        if let Link::Handshake(handshake) = &mut self.link {
            handshake.send(cx);
            return self.end(false, cx).unwrap_or(Verdict::Wait);
        }
        if !self.open(cx) {
            cx.counters.tcp_refused += 1;
            return self.abort(cx);
        }
        self.deliver(cx);
        self.tell_end();
        self.resize(cx);
        if let Link::Connection(connection) = &mut self.link {
            connection.expire(cx);
        }
        self.exchange(cx)
    }

    /// Returns true if the application has aborted a flow that takes no bytes of it: before the
    /// peer has answered, or after the end of its bytes. For others see
    /// [`aborted_meanwhile`](Self::aborted_meanwhile).
    fn was_aborted(&mut self) -> bool {
        let (takes, over) = match &self.link {
            Link::Connection(connection) => (!self.flags.closed, connection.is_over()),
            Link::Handshake(_) | Link::Failed => (false, false),
        };
        let Application::Open(stream) = &mut self.application else {
            return false;
        };
        if takes || !std::mem::take(&mut self.flags.readable) && !over {
            return false;
        }
        self.flags.called = false;
        stream.read(0).is_err()
    }

    /// Returns true if the application has aborted a flow that has no room or no memory for its
    /// bytes, and therefore did not ask for any.
    fn aborted_meanwhile(&mut self) -> bool {
        let Application::Open(stream) = &mut self.application else {
            return false;
        };
        std::mem::take(&mut self.flags.called) && !self.flags.closed && stream.read(0).is_err()
    }

    /// Sends what the application has, in turns of taking and sending.
    fn exchange(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        let mut left = BUDGET;
        let mut starved = false;
        loop {
            match self.collect(cx) {
                Collected::All => {}
                Collected::NoMemory => starved = true,
                Collected::Aborted => return self.abort(cx),
            }
            let Link::Connection(connection) = &mut self.link else {
                break;
            };
            connection.send(&mut left, cx);
            if left > 0 && (!self.flags.readable || starved) {
                connection.limited_by_application();
            }
            let more = self.flags.readable && !self.flags.closed && connection.room() > 0;
            if !more || starved || left == 0 {
                break;
            }
        }
        if self.aborted_meanwhile() || self.orphan_is_due(cx.io.now) {
            return self.abort(cx);
        }
        if let Some(verdict) = self.end(left > 0, cx) {
            verdict
        } else if left == 0 {
            Verdict::Again
        } else if starved {
            Verdict::Starved
        } else {
            Verdict::Wait
        }
    }

    /// The time at which [`service`](Self::service) has something to do without an event.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let link = match &self.link {
            Link::Handshake(handshake) if handshake.is_dialled() => {
                Some(handshake.deadline().min(self.since + CONNECT_TIMEOUT))
            }
            Link::Handshake(handshake) => Some(handshake.deadline()),
            Link::Connection(connection) => connection.deadline(now),
            Link::Failed => None,
        };
        // A timer that is due has just run. The flow must not make the stack spin.
        let link = link.map(|at| at.max(now + Duration::from_millis(1)));
        let orphan = self.orphaned.map(|since| since + ORPHAN_TIMEOUT);
        let is_large = match &self.link {
            Link::Connection(connection) => connection.is_large(),
            Link::Handshake(_) | Link::Failed => false,
        };
        let idle = is_large.then(|| self.moved + IDLE);
        [link, orphan, idle].into_iter().flatten().min()
    }

    /// Returns true if the flow has bytes to send, or unacknowledged ones, and nothing that makes
    /// it go on. Call it right after [`service`](Self::service) returned [`Verdict::Wait`], with
    /// the result of [`deadline`](Self::deadline) as `deadline`. It is true only because of a bug.
    pub(crate) fn is_stuck(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let Link::Connection(connection) = &self.link else {
            return deadline.is_none();
        };
        // The application has bytes, and the flow does not take them.
        let untaken = self.flags.readable
            && !self.flags.closed
            && connection.is_idle()
            && connection.state().may_send()
            && matches!(self.application, Application::Open(_));
        untaken || connection.is_stuck(deadline, now)
    }

    /// Abort the flow with RST.
    pub(crate) fn abort(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        match &mut self.link {
            Link::Handshake(handshake) => handshake.abort(cx),
            Link::Connection(connection) => connection.abort(cx),
            Link::Failed => {}
        }
        self.finish(Some(ErrorCode::ConnectionAborted));
        Verdict::Gone
    }

    /// End a dialled flow whose peer has not answered yet, with this reason. Returns false if it
    /// has answered.
    pub(crate) fn fail_connecting(&mut self, reason: ErrorCode) -> bool {
        let connecting = matches!(&self.link, Link::Handshake(handshake) if handshake.is_dialled());
        if connecting {
            self.finish(Some(reason));
        }
        connecting
    }

    /// Release the memory of the flow before it is dropped.
    pub(crate) fn release(mut self, memory: &mut Memory) {
        if let Link::Connection(connection) = &mut self.link {
            connection.release(memory);
        }
        memory.account(self.key.peer, self.accounted, 0);
    }

    /// Handles the effect of a segment on the handshake.
    fn answered(&mut self, answer: Answer, segment: &Segment<'_>, cx: &mut Context<'_, '_>) {
        match answer {
            Answer::Open(connection) => self.link = Link::Connection(connection),
            Answer::None => {}
            Answer::Reset => segment.send_reset(&self.key, cx.buffer, cx.io),
            Answer::Refused => self.link = Link::Failed,
        }
    }

    /// Tells the application of a dialled flow that the peer has answered, if it has.
    fn connected(&mut self) {
        if let (Link::Connection(_), Application::Open(stream)) =
            (&self.link, &mut self.application)
        {
            self.flags.readable = true;
            stream.connected();
        }
    }

    /// Offer the flow. Returns false if the application refuses it.
    fn open(&mut self, cx: &mut Context<'_, '_>) -> bool {
        let (Link::Connection(_), Application::Asked(info)) = (&self.link, &self.application)
        else {
            return true;
        };
        let Ok(stream) = cx.io.host.open_stream(info, self.token) else {
            self.application = Application::Done;
            return false;
        };
        self.application = Application::Open(stream);
        cx.counters.tcp_opened += 1;
        true
    }

    /// Deliver the received bytes to the application.
    fn deliver(&mut self, cx: &mut Context<'_, '_>) {
        let (Link::Connection(connection), Application::Open(stream)) =
            (&mut self.link, &mut self.application)
        else {
            return;
        };
        while !self.flags.blocked {
            let data = connection.peek(usize::MAX);
            if data.is_empty() {
                return;
            }
            let offered = data.len();
            let accepted = match self.flags.deaf {
                true => Ok(offered),
                false => stream.write(data).map(|count| offered.min(count as usize)),
            };
            let Ok(count) = accepted else {
                // The application has stopped reading. A read tells whether it still writes.
                self.flags.deaf = true;
                self.flags.readable = true;
                self.flags.called = true;
                continue;
            };
            connection.consume(count, cx.memory);
            self.moved = cx.io.now;
            self.flags.blocked = count < offered;
        }
    }

    /// Report the peer's close to the application, once it has read everything.
    fn tell_end(&mut self) {
        if let (Link::Connection(connection), Application::Open(stream)) =
            (&self.link, &mut self.application)
            && connection.is_read_out()
            && !self.flags.told
        {
            self.flags.told = true;
            // The application may have gone meanwhile; a read then reports it.
            let _ = stream.shutdown(Direction::Write);
        }
    }

    /// Grows the window of a peer that fills it, and shrinks that of an idle flow.
    fn resize(&mut self, cx: &mut Context<'_, '_>) {
        let Link::Connection(connection) = &mut self.link else {
            return;
        };
        connection.grow_window(cx.memory, cx.io.now);
        if connection.is_large() && cx.io.now >= self.moved + IDLE {
            connection.shrink();
        }
    }

    /// Take as many bytes from the application as may be sent.
    fn collect(&mut self, cx: &mut Context<'_, '_>) -> Collected {
        let (Link::Connection(connection), Application::Open(stream)) =
            (&mut self.link, &mut self.application)
        else {
            return Collected::All;
        };
        let peer = self.key.peer;
        while self.flags.readable && !self.flags.closed && connection.state().may_send() {
            let mut wanted = connection.room().min(CHUNK);
            let lacks = connection.lacks(wanted);
            if lacks > 0 && !cx.memory.grants(peer, lacks) {
                // The rest of a chunk may be enough to go on.
                let least = connection.lacks(1);
                if least > 0 && !cx.memory.grants(peer, least) {
                    return Collected::NoMemory;
                }
                wanted = wanted.min(connection.fits(least));
            }
            if wanted == 0 {
                break;
            }
            self.flags.called = false;
            match stream.read(wanted as u32) {
                Err(_) => return Collected::Aborted,
                Ok(None) => {
                    self.flags.closed = true;
                    connection.close();
                    if self.flags.deaf {
                        self.orphaned = Some(cx.io.now);
                    }
                }
                Ok(Some(data)) => {
                    // A short read arms the token, which comes when there is more.
                    self.flags.readable = data.len() >= wanted;
                    if data.is_empty() {
                        break;
                    }
                    if data.len() > wanted {
                        // The application gave more than requested.
                        return Collected::Aborted;
                    }
                    connection.push(&data, cx.memory);
                    self.moved = cx.io.now;
                }
            }
        }
        if self.flags.closed && self.flags.deaf && self.orphaned.is_none() {
            self.orphaned = Some(cx.io.now);
        }
        Collected::All
    }

    fn orphan_is_due(&self, now: Instant) -> bool {
        self.orphaned
            .is_some_and(|since| since + ORPHAN_TIMEOUT <= now)
    }

    /// The verdict on a flow that is over, or `None`. Reports the reason to the application.
    /// `spoke`: nothing is left to send.
    fn end(&mut self, spoke: bool, cx: &mut Context<'_, '_>) -> Option<Verdict> {
        let graceful = self.flags.told && self.flags.closed;
        let (reason, verdict) = match &self.link {
            Link::Handshake(handshake) => {
                let late = cx.io.now >= self.since + CONNECT_TIMEOUT;
                if !handshake.is_dialled() || !late {
                    return None;
                }
                cx.counters.tcp_timed_out += 1;
                (Some(ErrorCode::Timeout), Verdict::Gone)
            }
            Link::Failed => (Some(ErrorCode::ConnectionRefused), Verdict::Gone),
            Link::Connection(connection) => match connection.state() {
                State::TimeWait if graceful && spoke => {
                    (None, Verdict::Ended(connection.position(cx.io.now)))
                }
                State::Closed(End::TimedOut) => {
                    cx.counters.tcp_timed_out += 1;
                    (Some(ErrorCode::Timeout), Verdict::Gone)
                }
                State::Closed(End::Reset) => (Some(ErrorCode::ConnectionReset), Verdict::Gone),
                State::Closed(End::Regular) if graceful => (None, Verdict::Gone),
                // A closed connection here means that the application must still read.
                _ => return None,
            },
        };
        self.finish(reason);
        Some(verdict)
    }

    /// Release the application's stream: cleanly, or with a reset for this reason.
    fn finish(&mut self, reason: Option<ErrorCode>) {
        if let Application::Open(mut stream) =
            std::mem::replace(&mut self.application, Application::Done)
        {
            match reason {
                Some(reason) => stream.reset(reason),
                None => {
                    // Both directions are closed already; this confirms that nothing was lost.
                    let _ = stream.shutdown(Direction::Both);
                }
            }
        }
    }

    fn account(&mut self, memory: &mut Memory) {
        let held = match &self.link {
            Link::Connection(connection) => connection.held(),
            Link::Handshake(_) | Link::Failed => 0,
        };
        memory.account(self.key.peer, self.accounted, held);
        self.accounted = held;
    }
}

#[cfg(test)]
mod tests {
    use super::super::congestion::Cubic;
    use super::*;

    /// The size that [`Config::max_flows`](crate::Config::max_flows) assumes.
    #[test]
    fn an_idle_flow_is_small() {
        let size = size_of::<Flow>() + size_of::<Connection>() + size_of::<Cubic>();
        assert!(size < 1800, "{size} bytes");
    }
}
