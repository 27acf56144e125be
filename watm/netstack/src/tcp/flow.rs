//! One TCP connection: smoltcp's socket, the application's stream, and the bytes between them.
//! [`Tcp`](super::Tcp) owns the flows.

mod recovery;
mod undo;

use std::rc::Rc;
use std::time::Duration;

use managed::{Elastic, Handle, Lender};
use smoltcp::iface::{Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::wire::IpListenEndpoint;
use watm_core::{ByteStream, Direction, ErrorCode, FlowInfo, Instant, Token};

use super::cwnd::Congestion;
use super::memory::Memory;
use super::round_trip::RoundTrip;
use super::segment::{self, Segment, Sequence};
use super::time_wait::Last;
use super::width::Width;
use super::wire::{Log, Outgoing, Repeats, Wire};
use crate::counters::Counters;
use crate::io::Io;
use crate::table::Key;
use crate::timer::Alarm;
use recovery::Recovery;
use undo::{Doubt, REORDERED};

/// The size of each buffer of a new flow: the largest window without scaling.
pub(crate) const INITIAL_BUFFER: usize = 64 << 10;
/// The largest size of each buffer: 160 Mbit/s over 100 ms.
pub(crate) const MAX_BUFFER: usize = 2 << 20;
/// The most bytes passed to or from the application in one call; more gains nothing.
const CHUNK: usize = 256 << 10;
/// The segments that one flow sends before the next has its turn: 90 KB, one train.
const BUDGET: usize = 64;

/// The delay of the acknowledgement of a lone segment; two are acknowledged at once. Long enough
/// for the answer of a local application to carry the acknowledgement; too short to be noticed by a
/// client that holds back its next small segment until then (Nagle).
const ACK_DELAY: Duration = Duration::from_millis(2);
/// The silence after which a peer is probed, and the silence after which it counts as gone: longer
/// than the 100 s of RFC 9293 (R2).
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(240);
/// The time for which a peer may continue sending after the application has closed both directions,
/// as in Linux (`tcp_fin_timeout`).
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);
/// The time without traffic after which a flow's buffers return to the initial size.
const IDLE: Duration = Duration::from_secs(10);
/// The segment size of a peer that announces none (RFC 9293 section 3.7.1).
const DEFAULT_SEGMENT: usize = 536;
/// The delay that a batch and a timer may add to a round trip.
const SLACK: Duration = Duration::from_millis(50);
/// The time in which a peer must answer the SYNs of a dialled flow: some six of them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The bound between timers: acknowledgements wait for less than this, retransmissions for longer.
const SOON: Duration = Duration::from_millis(50);
/// The longest wait before a flow sends again, or probes a zero window: a minute, and the addition
/// of [`Flow::spread`].
const LONGEST_TIMER: Duration = Duration::from_secs(75);
/// The timeout beyond which the spread grows no further.
const MOST_SPREAD: Duration = Duration::from_secs(4);
/// The duration beyond which a handshake lost a packet, and measured that.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// The least time between two challenges of a flow (RFC 5961 section 7), as in Linux. Each flow has
/// its own, so that it reveals nothing about another one.
const CHALLENGE_PERIOD: Duration = Duration::from_millis(500);

/// One TCP connection: smoltcp's socket, and the application's stream.
pub(crate) struct Flow {
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    key: Key,
    token: Token,
    application: Application,
    rx: Handle,
    tx: Handle,
    log: Log,
    /// The bytes of this flow that [`Memory`] has counted.
    accounted: usize,
    /// The time of the first SYN, received or sent.
    pub since: Instant,
    round_trip: Duration,
    /// The number of the next byte for the application.
    taken: Sequence,
    /// The end of the furthest segment in the window. The buffer holds bytes beyond the ones in
    /// order, which the socket does not count.
    furthest: Sequence,
    /// The end of the bytes that the application wrote.
    queued_end: Sequence,
    /// The end of the bytes that the peer has acknowledged.
    acknowledged: Sequence,
    /// The window that the peer last announced, unscaled.
    window: u16,
    /// The number of consecutive acknowledgements with nothing new.
    duplicates: usize,
    /// True if the peer reports bytes beyond a gap (SACK).
    selective: bool,
    recovery: Option<Box<Recovery>>,
    doubt: Option<Box<Doubt>>,
    /// The end of the tail loss probe sent since the last new acknowledgement.
    probed: Option<Sequence>,
    /// The number of segments after a gap before it counts as lost.
    reordering: u16,
    congestion: Congestion,
    trips: RoundTrip,
    /// The bytes of a full segment to the peer.
    segment_size: usize,
    /// The most bytes in the send buffer since it was last empty.
    tx_peak: usize,
    /// The bytes for the application since `window_began`.
    window_taken: usize,
    window_began: Instant,
    /// The time when bytes last moved.
    moved: Instant,
    orphaned: Option<Instant>,
    /// The earliest time of the next challenge.
    challenge_at: Instant,
    flags: Flags,
    pub alarm: Alarm,
    /// True if the flow is in the list of flows with something to do.
    pub dirty: bool,
    /// True if the flow is in the queue for memory.
    pub starved: bool,
    /// The MTU of the path to its peer.
    path: usize,
    /// The MTU of the path behind the peer.
    pub width: Width,
}

enum Application {
    /// Offered as a flow when the handshake is complete.
    Asked(Box<FlowInfo>),
    Open(Box<dyn ByteStream>),
    /// Done: the application has let go of the flow.
    Done,
}

#[derive(Debug, Default)]
struct Flags {
    /// Dialled, and the peer has not answered yet.
    connecting: bool,
    /// The application may have bytes.
    readable: bool,
    /// The application takes no more bytes until its token is ready.
    blocked: bool,
    /// The application has closed its side.
    closed: bool,
    /// The application was told that the peer has closed.
    told: bool,
    /// The application has stopped reading.
    deaf: bool,
    /// The peer sent RST.
    reset: bool,
    /// The peer stopped answering.
    timed_out: bool,
    /// The socket is in TIME-WAIT and has acknowledged the FIN.
    lingers: bool,
    /// Nothing has moved since the buffers were made small.
    small: bool,
}

/// The resources of the stack that the flow works with.
pub(crate) struct Context<'a, 'io> {
    pub interface: &'a mut Interface,
    pub mtu: usize,
    pub buffer: &'a mut Vec<u8>,
    pub memory: &'a mut Memory,
    pub io: &'a mut Io<'io>,
    pub counters: &'a mut Counters,
}

/// The treatment of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Take,
    Ignore,
    /// Answered with a challenge: the flow's position, and the window that it announces.
    Challenge(Last, u16),
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

impl Flow {
    /// Makes a flow for this SYN, which it has not processed yet. Its own SYN gets the number
    /// `first`.
    pub(crate) fn accepted(
        key: Key,
        token: Token,
        info: FlowInfo,
        syn: &Segment<'_>,
        first: Sequence,
        memory: &Memory,
        now: Instant,
    ) -> Flow {
        let endpoint = IpListenEndpoint {
            addr: Some(key.destination.ip().into()),
            port: key.destination.port(),
        };
        let application = Application::Asked(Box::new(info));
        let mut flow = Flow::new(key, token, application, first, memory, now, |socket| {
            socket
                .listen(endpoint)
                .expect("the socket is new, and port 0 is a malformed segment");
        });
        flow.meet(syn);
        flow
    }

    /// Makes a dialled flow. Its SYN leaves when the flow is first served, with the number `first`.
    /// Source and destination of `key` are of one family, and no port is 0.
    pub(crate) fn dialled(
        key: Key,
        token: Token,
        application: Box<dyn ByteStream>,
        first: Sequence,
        memory: &Memory,
        interface: &mut Interface,
        now: Instant,
    ) -> Flow {
        let mut application = application;
        application.connecting();
        let application = Application::Open(application);
        let mut flow = Flow::new(key, token, application, first, memory, now, |socket| {
            socket.set_timeout(Some(CONNECT_TIMEOUT.into()));
            socket
                .connect(interface.context(), key.source, key.destination)
                .expect("the socket is new, and the caller has checked the addresses");
        });
        flow.flags.connecting = true;
        flow
    }

    /// Makes a flow. `open` brings the socket into its first state.
    fn new(
        key: Key,
        token: Token,
        application: Application,
        first: Sequence,
        memory: &Memory,
        now: Instant,
        open: impl FnOnce(&mut Socket<'static>),
    ) -> Flow {
        let lender: Rc<dyn Lender<u8>> = Rc::clone(&memory.pool) as Rc<dyn Lender<u8>>;
        let (rx_memory, rx) = Elastic::new(MAX_BUFFER, Rc::clone(&lender));
        let (tx_memory, tx) = Elastic::new(INITIAL_BUFFER, lender);
        let mut socket = Socket::new(SocketBuffer::new(rx_memory), SocketBuffer::new(tx_memory));
        // `Congestion` replaces smoltcp's congestion control.
        socket.set_congestion_control(CongestionControl::None);
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(Some(ACK_DELAY.into()));
        socket.set_keep_alive(Some(KEEP_ALIVE.into()));
        socket.set_timeout(Some(TIMEOUT.into()));
        open(&mut socket);
        // The socket has fixed its window scale by the largest size; the buffer begins smaller.
        rx.set_unused_len(INITIAL_BUFFER);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        Flow {
            sockets,
            socket,
            key,
            token,
            application,
            rx,
            tx,
            log: Log::new(first),
            accounted: 0,
            since: now,
            round_trip: Duration::ZERO,
            taken: Sequence::default(),
            furthest: Sequence::default(),
            queued_end: Sequence::default(),
            acknowledged: Sequence::default(),
            window: 0,
            duplicates: 0,
            selective: false,
            recovery: None,
            doubt: None,
            probed: None,
            reordering: REORDERED,
            congestion: Congestion::new(DEFAULT_SEGMENT, Sequence::default(), now),
            trips: RoundTrip::default(),
            segment_size: DEFAULT_SEGMENT,
            tx_peak: 0,
            window_taken: 0,
            window_began: now,
            moved: now,
            orphaned: None,
            challenge_at: now,
            flags: Flags {
                small: true,
                ..Flags::default()
            },
            alarm: Alarm::default(),
            dirty: false,
            starved: false,
            path: 0,
            width: Width::default(),
        }
    }

    /// The largest packet, in bytes.
    pub(crate) fn mtu(&self) -> usize {
        self.width.mtu(self.path)
    }

    /// Set the MTU of the path to the peer. Returns true if there is something to do: segments in
    /// flight that may be too long are sent again in smaller ones.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        let before = self.mtu();
        self.path = mtu;
        self.mtu() < before && self.send_all_again()
    }

    /// Take over the content of the peer's SYN.
    fn meet(&mut self, syn: &Segment<'_>) {
        let first = syn.sequence().plus(1);
        self.taken = first;
        self.furthest = first;
        self.window = syn.repr.window_len;
        self.segment_size = usize::from(syn.repr.max_seg_size.unwrap_or(0)).max(DEFAULT_SEGMENT);
        self.selective = syn.repr.sack_permitted;
        self.log.shift = match syn.repr.window_scale {
            Some(_) => MAX_BUFFER.ilog2() as u8 + 1 - 16,
            None => 0,
        };
    }

    /// Returns true if the handshake is not complete.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.application, Application::Asked(_))
    }

    /// Decides whether a segment is processed. A SYN or a reset may come from an attacker who
    /// guesses the numbers of this flow. The answer is a challenge with the flow's position; a
    /// genuine peer then repeats its segment with the right number (RFC 5961 sections 3 and 4).
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: Instant) -> Judgement {
        let (resets, is_syn) = (segment.resets(), segment.is_syn());
        if !resets && !is_syn {
            return Judgement::Take;
        }
        let Some((last, room)) = self.position(now) else {
            return Judgement::Take;
        };
        let start = segment.sequence();
        let in_window = !last.theirs.is_after(start) && start.until(last.theirs.plus(room)) > 0;
        let counts = resets && start == last.theirs;
        // A repeated SYN during the handshake already has its answer.
        if counts || is_syn && self.state() == State::SynReceived {
            return Judgement::Take;
        }
        if resets && !in_window || now < self.challenge_at {
            return Judgement::Ignore;
        }
        self.challenge_at = now + CHALLENGE_PERIOD;
        let window = room >> self.log.shift;
        Judgement::Challenge(last, u16::try_from(window).unwrap_or(u16::MAX))
    }

    /// Process a segment of this flow, in a packet that may be changed.
    pub(crate) fn ingress(
        &mut self,
        packet: &mut [u8],
        segment: &Segment<'_>,
        cx: &mut Context<'_, '_>,
    ) {
        if self.flags.connecting {
            self.ingress_answer(packet, segment, cx);
            return;
        }
        if !segment.repr.payload.is_empty() && !self.admits(segment, cx) {
            return;
        }
        let before = self.state();
        let acknowledged = self.modernize(packet, segment);
        self.feed(packet, acknowledged, cx);
        if !self.is_half_open() {
            self.learn(segment, cx.io.now);
        }
        if acknowledged == segment.acknowledges() {
            self.window = segment.repr.window_len;
        }
        let after = self.state();
        let ended = before != after && matches!(after, State::Closed | State::Listen);
        self.flags.reset |= ended && segment.resets();
        self.account(cx.memory);
    }

    /// Returns the acknowledgement number that smoltcp gets for a segment. A segment that others
    /// overtook acknowledges less than they did. Its payload counts (RFC 9293 section 3.10.7.4),
    /// but smoltcp would drop it. RFC 5961 section 5.2 bounds how far it may be behind.
    fn modernize(&self, packet: &mut [u8], segment: &Segment<'_>) -> Option<Sequence> {
        let acknowledged = segment.acknowledges()?;
        let behind = acknowledged.until(self.acknowledged);
        if self.is_half_open() || behind == 0 || behind > MAX_BUFFER || segment.is_bare() {
            return Some(acknowledged);
        }
        segment::set_window(packet, self.window);
        Some(self.acknowledged)
    }

    /// Process a possible answer to the SYN of a dialled flow: an acceptance or a refusal.
    fn ingress_answer(
        &mut self,
        packet: &mut [u8],
        segment: &Segment<'_>,
        cx: &mut Context<'_, '_>,
    ) {
        // A peer that opens the same connection at the same time repeats its SYN, and
        // implementations send no data with the acceptance.
        if segment.opens() || !segment.repr.payload.is_empty() {
            cx.counters.tcp_malformed += 1;
            return;
        }
        self.feed(packet, segment.acknowledges(), cx);
        match self.state() {
            State::Established => {
                self.meet(segment);
                // The socket treats the unscaled window of the SYN as scaled.
                let window = usize::from(u16::MAX) << self.log.shift;
                self.log.window_end = Some(segment.sequence().plus(window));
                self.flags.connecting = false;
                self.flags.readable = true;
                self.socket_mut().set_timeout(Some(TIMEOUT.into()));
                self.established(cx);
                if let Application::Open(stream) = &mut self.application {
                    stream.connected();
                }
            }
            State::Closed => self.flags.reset = true,
            _ => {}
        }
    }

    /// The payload bytes of a full segment on this path.
    fn full_segment(&self) -> usize {
        let headers = if self.key.source.is_ipv4() { 40 } else { 60 };
        self.segment_size
            .min(self.mtu().saturating_sub(headers))
            .max(1)
    }

    /// Pass a packet to smoltcp, with this acknowledgement number.
    fn feed(
        &mut self,
        packet: &mut [u8],
        acknowledged: Option<Sequence>,
        cx: &mut Context<'_, '_>,
    ) {
        if let Some(acknowledged) = acknowledged {
            segment::set_acknowledged(packet, self.log.enter(acknowledged));
        }
        let time = smoltcp_time(cx.io.now);
        let mut wire = Wire {
            mtu: cx.mtu,
            incoming: Some(packet),
            outgoing: Outgoing {
                peer: self.key.peer,
                sink: cx.io.sink,
                buffer: cx.buffer,
                log: &mut self.log,
            },
        };
        cx.interface
            .poll_ingress_single(time, &mut wire, &mut self.sockets);
    }

    /// Handle a ready token: the application may take or have more.
    pub(crate) fn ready(&mut self) {
        self.flags.readable = true;
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
        self.release_tx();
        self.account(cx.memory);
        verdict
    }

    fn work(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        let mut left = BUDGET;
        if self.is_half_open() {
            match self.state() {
                State::Closed | State::Listen => return Verdict::Gone,
                State::SynReceived => {
                    self.egress(&mut left, cx);
                    return Verdict::Wait;
                }
                _ if !self.open(cx) => {
                    cx.counters.tcp_refused += 1;
                    return self.abort(cx);
                }
                _ => {}
            }
        }
        self.deliver(cx);
        self.tell_end();
        self.grow_rx(cx);
        self.shrink_when_idle(cx.io.now);
        self.congestion.prepare(self.full_segment(), cx.io.now);
        let mut starved = false;
        loop {
            match self.collect(cx) {
                Collected::All => {}
                Collected::NoMemory => starved = true,
                Collected::Aborted => return self.abort(cx),
            }
            self.egress(&mut left, cx);
            if !self.grow_tx(cx) {
                break;
            }
        }
        if self.orphan_is_due(cx.io.now) {
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
    pub(crate) fn deadline(&self, cx: &mut Context<'_, '_>) -> Option<Instant> {
        let now = cx.io.now;
        let socket = match cx.interface.poll_at(smoltcp_time(now), &self.sockets) {
            _ if self.holds_unread() => None,
            // The socket was just polled until it had nothing to send; it must not make the stack
            // spin.
            at => {
                let ours = [self.trips.timeout_at(), self.probe_at()];
                let at = ours
                    .into_iter()
                    .chain([at.map(from_smoltcp)])
                    .flatten()
                    .min();
                at.map(|at| (at + self.spread(at - now)).max(now + Duration::from_millis(1)))
            }
        };
        let orphan = self.orphaned.map(|since| since + ORPHAN_TIMEOUT);
        let idle = (!self.flags.small).then(|| self.moved + IDLE);
        [socket, orphan, idle].into_iter().flatten().min()
    }

    /// Returns true if the flow has bytes to send, or unacknowledged ones, and nothing that makes
    /// it go on. Call it right after [`service`](Self::service) returned [`Verdict::Wait`], with
    /// the result of [`deadline`](Self::deadline) as `deadline`. It is true only because of a bug.
    pub(crate) fn is_stuck(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let socket = self.sockets.get::<Socket<'_>>(self.socket);
        if self.is_half_open() || self.flags.connecting || self.holds_unread() {
            return false;
        }
        let in_time = deadline.is_some_and(|at| at <= now + LONGEST_TIMER);
        if self.unanswered().is_some() {
            return self.trips.timeout_at().is_none() || !in_time;
        }
        let waits = self.flags.readable && !self.flags.closed && socket.may_send();
        match socket.send_queue() {
            // The application has bytes, and the flow does not take them.
            0 => waits && matches!(self.application, Application::Open(_)),
            // The peer has no room, and is probed for it.
            _ => !in_time,
        }
    }

    /// The delay of a retransmission beyond its timeout: up to a quarter of the timeout, and a
    /// second. Without it, hundreds of flows that lost one burst would send the next in the same
    /// millisecond, lose it again, and wait twice as long each time.
    fn spread(&self, until: Duration) -> Duration {
        if until < SOON {
            return Duration::ZERO;
        }
        let end = self.log.sent_end.map_or(0, |end| end.0);
        // The multiplier is the golden ratio's bits: close values of `end` are far apart in the
        // product.
        until.min(MOST_SPREAD) * (end.wrapping_mul(0x9E37_79B9) >> 24) / 1024
    }

    /// Abort the flow with RST.
    pub(crate) fn abort(&mut self, cx: &mut Context<'_, '_>) -> Verdict {
        self.socket_mut().abort();
        self.egress(&mut { BUDGET }, cx);
        self.finish(Some(ErrorCode::ConnectionAborted));
        Verdict::Gone
    }

    /// Returns true if a segment that begins here may be in flight. An off-path attacker does not
    /// know that (RFC 5927 section 4.1).
    pub(crate) fn has_in_flight(&self, sequence: u32) -> bool {
        /// The most bytes that a flow has in flight.
        const MOST: u32 = 1 << 21;
        let sent_end = self.log.sent_end;
        sent_end.is_some_and(|end| (1..=MOST).contains(&end.0.wrapping_sub(sequence)))
    }

    /// End a flow whose peer has not answered yet, with this reason. Returns false if it has
    /// answered.
    pub(crate) fn fail_connecting(&mut self, reason: ErrorCode) -> bool {
        if self.flags.connecting {
            self.finish(Some(reason));
        }
        self.flags.connecting
    }

    /// Release the memory of the flow before it is dropped.
    pub(crate) fn release(self, memory: &mut Memory) {
        let (peer, accounted) = (self.key.peer, self.accounted);
        drop(self);
        memory.account(peer, accounted, 0);
    }

    fn state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.socket).state()
    }

    fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// Returns true if there is room for the payload of this segment.
    ///
    /// smoltcp assumes that the buffer has room for the whole announced window. This is false right
    /// after the handshake (see [`Log`]), and after the buffer has shrunk.
    fn admits(&mut self, segment: &Segment<'_>, cx: &mut Context<'_, '_>) -> bool {
        let socket = self.sockets.get::<Socket<'_>>(self.socket);
        let next = self.taken.plus(socket.recv_queue());
        let buffer_end = self.taken.plus(socket.recv_capacity());
        let window_end = self.log.window_end.unwrap_or(next);
        let start = segment.sequence();
        let end = start.plus(segment.repr.payload.len());
        // After its FIN a peer has no more data (RFC 9293 section 3.10.7.4), but smoltcp would
        // accept some.
        if has_closed(socket.state()) && end.is_after(next.plus(1)) {
            cx.counters.tcp_malformed += 1;
            return false;
        }
        if self.selective {
            self.note_twice(start, end, next);
        }
        let in_window = window_end.is_after(start) && end.is_after(next);
        if !in_window {
            // The socket answers with the number that it expects.
            return true;
        }
        if end.earlier(window_end).is_after(buffer_end) {
            cx.counters.tcp_beyond_buffer += 1;
            return false;
        }
        if self.rx.held() == 0 && !cx.memory.grants(self.key.peer, self.rx.len()) {
            cx.counters.tcp_no_memory += 1;
            return false;
        }
        let arrivals = self.log.arrivals.as_deref();
        if start.is_after(next) && arrivals.is_some_and(|arrivals| !arrivals.has_room((start, end)))
        {
            cx.counters.tcp_too_many_gaps += 1;
            return false;
        }
        self.furthest = self.furthest.later(end.earlier(window_end));
        true
    }

    /// Records bytes between `start` and `end` that arrived before; the byte at `next` is missing.
    fn note_twice(&mut self, start: Sequence, end: Sequence, next: Sequence) {
        let before = || Some((start, end.earlier(next))).filter(|_| next.is_after(start));
        let beyond = || self.log.arrivals.as_ref()?.known((start, end));
        if let Some(twice) = before().or_else(beyond) {
            let arrivals = self.log.arrivals.get_or_insert_default();
            arrivals.note_twice(twice);
        }
    }

    /// Offer the flow. Returns false if the application refuses it.
    fn open(&mut self, cx: &mut Context<'_, '_>) -> bool {
        let Application::Asked(info) = &self.application else {
            return true;
        };
        let Ok(stream) = cx.io.host.open_stream(info, self.token) else {
            self.application = Application::Done;
            return false;
        };
        self.application = Application::Open(stream);
        cx.counters.tcp_opened += 1;
        self.established(cx);
        true
    }

    /// Handle the end of the handshake.
    fn established(&mut self, cx: &Context<'_, '_>) {
        // Until now only a SYN was sent.
        self.queued_end = self.log.sent_end.unwrap_or_default();
        self.acknowledged = self.queued_end;
        self.log.repeats = Repeats::Nothing;
        let now = cx.io.now;
        self.round_trip = (now - self.since).min(LONGEST_ROUND_TRIP);
        if self.round_trip < LONGEST_ROUND_TRIP {
            self.trips.shook_hands(self.round_trip);
        }
        self.congestion = Congestion::new(self.full_segment(), self.queued_end, now);
        self.window_began = now;
    }

    /// Deliver the received bytes to the application.
    fn deliver(&mut self, cx: &mut Context<'_, '_>) {
        let Application::Open(stream) = &mut self.application else {
            return;
        };
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while !self.flags.blocked {
            let queued = socket.recv_queue();
            if queued == 0 {
                return;
            }
            let mut offered = 0;
            let mut accepted = Ok(0);
            let deaf = self.flags.deaf;
            let read = socket.recv(|data| {
                let data = &data[..data.len().min(CHUNK)];
                offered = data.len();
                accepted = match deaf {
                    true => Ok(offered),
                    false => stream.write(data).map(|count| offered.min(count as usize)),
                };
                // The last byte is taken below.
                let count = accepted.as_ref().map_or(0, |count| *count);
                (count - usize::from(count == queued), ())
            });
            if read.is_err() {
                return;
            }
            let Ok(count) = accepted else {
                // The application has stopped reading. A read tells whether it still writes.
                self.flags.deaf = true;
                self.flags.readable = true;
                continue;
            };
            if count == queued {
                // Removing the last byte empties the buffer, whatever the state of the socket, so
                // that this very access can release the memory.
                let holds_later = self.furthest.is_after(self.taken.plus(queued));
                let mut take = || {
                    let _ = socket.recv_slice(&mut [0]);
                };
                if holds_later {
                    take();
                } else {
                    self.rx.release_read(self.rx.len(), take);
                }
            }
            self.taken = self.taken.plus(count);
            self.window_taken += count;
            self.moved = cx.io.now;
            self.flags.small = self.rx.len() == INITIAL_BUFFER && self.tx.len() == INITIAL_BUFFER;
            self.flags.blocked = count < offered;
        }
    }

    /// Report the peer's close to the application, once it has read everything.
    fn tell_end(&mut self) {
        let socket = self.sockets.get::<Socket<'_>>(self.socket);
        // LAST-ACK ends in CLOSED.
        let closed = has_closed(socket.state())
            || socket.state() == State::Closed && !self.flags.reset && !self.flags.timed_out;
        if closed
            && !self.flags.told
            && socket.recv_queue() == 0
            && let Application::Open(stream) = &mut self.application
        {
            self.flags.told = true;
            // The application may have gone meanwhile; a read then reports it.
            let _ = stream.shutdown(Direction::Write);
        }
    }

    /// Take as many bytes from the application as the buffer has room for.
    fn collect(&mut self, cx: &mut Context<'_, '_>) -> Collected {
        let mut allowance = self.allowance_of_new();
        let segment = self.full_segment();
        let Application::Open(stream) = &mut self.application else {
            return Collected::All;
        };
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while self.flags.readable && !self.flags.closed && socket.may_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let room = room.min(allowance);
            // Take full segments only.
            let room = room - room % segment;
            if room == 0 {
                break;
            }
            if self.tx.held() == 0 && !cx.memory.grants(self.key.peer, self.tx.len()) {
                return Collected::NoMemory;
            }
            let wanted = room.min(CHUNK);
            match stream.read(wanted as u32) {
                Err(_) => return Collected::Aborted,
                Ok(None) => {
                    self.flags.closed = true;
                    socket.close();
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
                    if socket.send_slice(&data) != Ok(data.len()) {
                        // The application gave more than requested.
                        return Collected::Aborted;
                    }
                    self.queued_end = self.queued_end.plus(data.len());
                    allowance -= data.len().min(allowance);
                    self.tx_peak = self.tx_peak.max(socket.send_queue());
                    self.moved = cx.io.now;
                }
            }
        }
        if self.flags.closed && self.flags.deaf && self.orphaned.is_none() {
            self.orphaned = Some(cx.io.now);
        }
        Collected::All
    }

    /// Send the pending segments, at most `left` packets.
    fn egress(&mut self, left: &mut usize, cx: &mut Context<'_, '_>) {
        if self.holds_unread() {
            return;
        }
        let time = smoltcp_time(cx.io.now);
        let before = self.state();
        if self.trips.timeout_at().is_some_and(|at| at <= cx.io.now) {
            self.time_out(cx.io.now);
        }
        let sent_before = self.log.sent_end;
        while *left > 0 && self.poll_egress(time, cx) != PollResult::None {
            *left -= 1;
        }
        if *left > 0 {
            self.send_again(left, cx);
        }
        if self.probe_at().is_some_and(|at| at <= cx.io.now) {
            self.probe(left, cx);
        }
        let unanswered = self.unanswered();
        if let (Some(from), Some(end)) = (unanswered, self.log.sent_end)
            && self.log.sent_end != sent_before
        {
            self.trips.begin(end, from.until(end), cx.io.now);
        }
        self.trips.wait(unanswered, cx.io.now);
        if let Some(end) = self.log.sent_end {
            let flight = self.in_flight();
            self.congestion
                .sent(flight, self.acknowledged, end, cx.io.now);
        }
        let after = self.state();
        self.flags.lingers = after == State::TimeWait;
        // The socket closes by itself only for this reason, and at the end of TIME-WAIT.
        self.flags.timed_out |=
            after == State::Closed && !matches!(before, State::Closed | State::TimeWait);
    }

    fn poll_egress(
        &mut self,
        time: smoltcp::time::Instant,
        cx: &mut Context<'_, '_>,
    ) -> PollResult {
        let mut wire = Wire {
            mtu: cx.mtu,
            incoming: None,
            outgoing: Outgoing {
                peer: self.key.peer,
                sink: cx.io.sink,
                buffer: cx.buffer,
                log: &mut self.log,
            },
        };
        cx.interface.poll_egress(time, &mut wire, &mut self.sockets)
    }

    /// Returns true if the application must still read bytes after the end of TIME-WAIT, when the
    /// socket would forget them. The end then waits; everything to send has been sent.
    fn holds_unread(&self) -> bool {
        self.flags.lingers && self.sockets.get::<Socket<'_>>(self.socket).recv_queue() > 0
    }

    /// Double the receive buffer if the peer filled the window within a round trip, so that the
    /// window limits it.
    fn grow_rx(&mut self, cx: &mut Context<'_, '_>) {
        let length = self.rx.len();
        if self.window_taken < length {
            return;
        }
        let now = cx.io.now;
        let fast = now - self.window_began <= self.round_trip * 2 + SLACK;
        self.window_taken = 0;
        self.window_began = now;
        if fast
            && length < MAX_BUFFER
            && self.log.shift > 0
            && cx.memory.grants(self.key.peer, length * 2)
        {
            let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
            let touch = || {
                let _ = socket.recv(|_| (0, ()));
            };
            if self.rx.grow(length * 2, touch) {
                self.flags.small = false;
            }
        }
    }

    /// Double the send buffer if all of it is in flight and the window allows more, so that the
    /// buffer limits the flow. Returns true if there is room for more now.
    fn grow_tx(&mut self, cx: &mut Context<'_, '_>) -> bool {
        let length = self.tx.len();
        let segment = self.full_segment();
        let allowed = self.allowance_of_new() >= segment;
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let limits = self.flags.readable
            && allowed
            && socket.may_send()
            && length - socket.send_queue() < segment
            && self.log.sent_end == Some(self.queued_end);
        if !limits || length >= MAX_BUFFER || !cx.memory.grants(self.key.peer, length * 2) {
            return false;
        }
        let grown = self.tx.grow(length * 2, || {
            let _ = socket.send(|_| (0, ()));
        });
        self.flags.small &= !grown;
        grown
    }

    /// Release the memory of an empty send buffer. After the application has closed, the socket
    /// does not allow this: the memory is then released with the flow.
    fn release_tx(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        if self.tx.held() > 0 && socket.send_queue() == 0 && socket.may_send() {
            // Keep room for at most twice the peak.
            let wanted = (self.tx_peak * 2).next_power_of_two();
            self.tx_peak = 0;
            self.tx.release_write(wanted.max(INITIAL_BUFFER), || {
                let _ = socket.send(|_| (0, ()));
            });
        }
    }

    /// Shrink the buffers of a flow that moved nothing for a while.
    fn shrink_when_idle(&mut self, now: Instant) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        if self.flags.small || now < self.moved + IDLE {
            return;
        }
        let empty = socket.recv_queue() == 0 && !self.furthest.is_after(self.taken);
        if empty {
            self.rx.release_read(INITIAL_BUFFER, || {
                let _ = socket.recv(|_| (0, ()));
            });
        }
        if socket.send_queue() == 0 && socket.may_send() {
            self.tx.release_write(INITIAL_BUFFER, || {
                let _ = socket.send(|_| (0, ()));
            });
        }
        // A failed attempt is repeated after the flow has moved again.
        self.flags.small = true;
    }

    fn orphan_is_due(&self, now: Instant) -> bool {
        self.orphaned
            .is_some_and(|since| since + ORPHAN_TIMEOUT <= now)
    }

    /// Returns true if the connection is closed.
    pub(crate) fn is_over(&self) -> bool {
        self.state() == State::Closed
    }

    /// The position of both directions, after both SYNs, and the number of bytes accepted beyond
    /// it.
    fn position(&self, now: Instant) -> Option<(Last, usize)> {
        let socket = self.sockets.get::<Socket<'_>>(self.socket);
        let ended = match socket.state() {
            State::Closed | State::Listen | State::SynSent => return None,
            state => usize::from(has_closed(state)),
        };
        let theirs = self.taken.plus(socket.recv_queue() + ended);
        let last = Last {
            since: now,
            ours: self.log.sent_end?,
            theirs,
        };
        let room = socket.recv_capacity() - socket.recv_queue();
        let promised = theirs.until(self.log.window_end?);
        Some((last, room.min(promised)))
    }

    /// The verdict on a flow that is over, or `None`. Reports the reason to the application.
    /// `spoke`: the socket has nothing left to send.
    fn end(&mut self, spoke: bool, cx: &mut Context<'_, '_>) -> Option<Verdict> {
        let graceful = self.flags.told && self.flags.closed;
        let (reason, verdict) = match self.state() {
            State::TimeWait if graceful && spoke => {
                let last = Last {
                    since: cx.io.now,
                    ours: self.log.sent_end.unwrap_or_default(),
                    theirs: self.taken.plus(1),
                };
                (None, Verdict::Ended(last))
            }
            State::Closed if self.flags.timed_out => {
                cx.counters.tcp_timed_out += 1;
                (Some(ErrorCode::Timeout), Verdict::Gone)
            }
            State::Closed if self.flags.reset && self.flags.connecting => {
                (Some(ErrorCode::ConnectionRefused), Verdict::Gone)
            }
            State::Closed if self.flags.reset => (Some(ErrorCode::ConnectionReset), Verdict::Gone),
            State::Closed if graceful => (None, Verdict::Gone),
            // A closed socket here means that the application must still read.
            _ => return None,
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
        let held = self.rx.held() + self.tx.held();
        memory.account(self.key.peer, self.accounted, held);
        self.accounted = held;
    }
}

/// Returns true if the peer's FIN and everything before it has arrived.
fn has_closed(state: State) -> bool {
    matches!(
        state,
        State::CloseWait | State::Closing | State::LastAck | State::TimeWait
    )
}

enum Collected {
    /// Everything that there is, or that fits.
    All,
    NoMemory,
    /// The application has aborted the flow.
    Aborted,
}

pub(crate) fn smoltcp_time(now: Instant) -> smoltcp::time::Instant {
    // 2^64 ns are less than 2^63 us.
    smoltcp::time::Instant::from_micros((now.0 / 1000) as i64)
}

fn from_smoltcp(at: smoltcp::time::Instant) -> Instant {
    Instant(
        u64::try_from(at.total_micros())
            .unwrap_or(0)
            .saturating_mul(1000),
    )
}

#[cfg(test)]
mod tests {
    use smoltcp::iface::SocketStorage;

    use super::*;

    /// The size that [`Config::max_flows`](crate::Config::max_flows) assumes.
    #[test]
    fn an_idle_flow_is_small() {
        let size = size_of::<Flow>() + size_of::<SocketStorage<'_>>();
        assert!(size < 1800, "{size} bytes");
    }
}
