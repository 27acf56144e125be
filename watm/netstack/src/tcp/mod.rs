//! TCP (RFC 9293): a flow for each connection, accepted or dialled.

mod buffer;
mod clocks;
pub(crate) mod congestion;
mod connection;
mod emit;
mod flow;
mod half_open;
mod initial;
mod memory;
mod options;
mod receive;
mod run;
mod segment;
mod send;
mod sequence;
mod time_wait;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{ByteStream, ErrorCode, FlowKind, Instant, Token};

use self::buffer::CHUNK;
use self::congestion::Algorithm;
use self::connection::{Context, Judgement, Start};
use self::flow::{Flow, Verdict};
use self::half_open::HalfOpen;
use self::initial::Initial;
use self::memory::Memory;
use self::run::Run;
use self::segment::Segment;
pub(crate) use self::send::width::NARROWEST;
use self::time_wait::TimeWait;
use crate::config::Config;
use crate::counters::Counters;
use crate::elsewhere::{Admission, Elsewhere};
use crate::hash::Keyed;
use crate::icmp_error::{Fate, ReportedError};
use crate::io::{Io, flow_info};
use crate::ip::{Packet, Sender};
use crate::limit::Limiter;
use crate::table::{FlowId, Key, Protocol, Table};
use crate::timer::Timers;
use crate::{Origin, PeerId, port};

/// The answers to segments of unknown flows at once, and in each second after that. A client that
/// outlives a restart of the stack learns at once that its connections are gone, and a flood is not
/// answered one to one.
const STRAY_BURST: u32 = 500;
const STRAYS_PER_SECOND: u32 = 100;
/// The flows without memory that are tried again in one flush.
const RETRIES: usize = 64;
/// The time after which a flow without memory is tried again, if none was released meanwhile.
const RETRY: Duration = Duration::from_millis(250);

/// The TCP part of the stack.
pub(crate) struct Tcp {
    initial: Initial,
    algorithm: Algorithm,
    /// The buffer for packets, one at a time.
    buffer: Vec<u8>,
    flows: Table<Flow>,
    timers: Timers,
    half_open: HalfOpen,
    time_wait: TimeWait,
    memory: Memory,
    strays: Limiter,
    /// The hash that chooses ports.
    hash: Keyed,
    /// The number of dialled flows.
    dialled: u64,
    /// The flow of the last packet, if there was no flush since.
    current: Option<FlowId>,
    /// The run of segments of this flow that is in progress.
    run: Option<Run>,
    /// Flows with something to do in the next flush, each at most once.
    dirty: Vec<FlowId>,
    /// Flows that wait for memory, each at most once; some may be gone.
    starved: VecDeque<FlowId>,
    /// True if some of them had success, so that the rest may too.
    retries: bool,
    /// The time at which the rest is tried in any case.
    retry_at: Option<Instant>,
}

impl Tcp {
    /// Makes the TCP part. `secret` is for sequence numbers.
    pub(crate) fn new(config: &Config, secret: u64, hash: Keyed) -> Self {
        Tcp {
            initial: Initial::new(secret),
            algorithm: config.congestion,
            buffer: Vec::new(),
            flows: Table::new(hash),
            timers: Timers::default(),
            half_open: HalfOpen::new(hash),
            time_wait: TimeWait::new(hash),
            memory: Memory::new(config.buffer_budget, hash),
            strays: Limiter::new(STRAY_BURST, STRAYS_PER_SECOND, hash),
            hash,
            dialled: 0,
            current: None,
            run: None,
            dirty: Vec::new(),
            starved: VecDeque::new(),
            retries: false,
            retry_at: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The number of this peer's flows.
    pub(crate) fn len_of(&self, peer: PeerId) -> usize {
        self.flows.len_of(peer)
    }

    /// The keys of open flows, and of those in TIME-WAIT.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let open = self.flows.iter().map(|(_, key, _)| key);
        open.chain(self.time_wait.keys())
    }

    /// Returns true if there are connections in TIME-WAIT.
    pub(crate) fn has_late(&self) -> bool {
        self.time_wait.deadline().is_some()
    }

    /// The bytes of buffers that flows hold.
    pub(crate) fn held(&self) -> usize {
        self.memory.pool.lent()
    }

    /// Adopt another configuration.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.memory.budget = config.buffer_budget;
        self.algorithm = config.congestion;
    }

    /// Update the MTU of the path to one peer, or of all.
    pub(crate) fn resize(&mut self, peer: Option<PeerId>, sender: &Sender) {
        for (id, peer) in self.flows.of(peer) {
            if let Some(flow) = self.flows.get_mut(id)
                && flow.set_mtu(sender.mtu(peer))
            {
                self.touch(id);
            }
        }
    }

    /// Process a packet. Returns false if it would open a flow without room for one: the caller may
    /// make room and try again, or [refuse](Self::refuse) it.
    pub(crate) fn handle(
        &mut self,
        origin: &Origin,
        packet: &Packet<'_>,
        admission: Admission<'_>,
        sender: &Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) -> bool {
        let Some(segment) = Segment::parse(packet) else {
            counters.tcp_malformed += 1;
            return true;
        };
        let key = segment.key(origin.peer, packet);
        if self.continues_run(&key, &segment, io, counters) {
            return true;
        }
        let mut id = self.flows.find(&key);
        if let Some(over) = id
            && segment.opens()
            && self.flows.get_mut(over).is_some_and(|flow| flow.is_over())
        {
            // The connection ended just before, in the same batch.
            self.service(over, io, counters);
            id = self.flows.find(&key);
        }
        if id.is_none()
            && (self.answer_late(&key, &segment, io)
                || admission
                    .elsewhere
                    .takes(Protocol::Tcp, &key, packet, io.sink))
        {
            return true;
        }
        if let Some(flow) = id.and_then(|id| self.flows.get_mut(id)) {
            match flow.judge(&segment, io.now) {
                Judgement::Take => {}
                Judgement::Ignore => return true,
                Judgement::Challenge => {
                    counters.tcp_challenged += 1;
                    let parts = id.and_then(|id| self.parts(id, io, counters));
                    if let Some((flow, mut cx)) = parts {
                        flow.challenge(&mut cx);
                    }
                    return true;
                }
            }
        }
        let id = match id {
            Some(id) => id,
            None if !segment.opens() => {
                self.answer_stray(&key, &segment, io, counters);
                return true;
            }
            None if !io.host.accepts(FlowKind::Bytes, &key.destination.into()) => {
                segment.send_reset(&key, &mut self.buffer, io);
                counters.tcp_refused += 1;
                return true;
            }
            None if !admission.room => return false,
            None if !self.memory.grants(origin.peer, 2 * CHUNK) => {
                segment.send_reset(&key, &mut self.buffer, io);
                counters.tcp_refused += 1;
                return true;
            }
            None => {
                let mtu = sender.mtu(key.peer);
                self.admit(key, origin, &segment, mtu, io, counters)
            }
        };
        self.change_to(id, io, counters);
        let (flow, mut cx) = self.parts(id, io, counters).expect("found or made above");
        let took = flow.ingress(&segment, &mut cx);
        self.touch(id);
        self.run = Run::after(id, &key, &segment).filter(|_| took);
        true
    }

    /// Takes a segment that continues the run in progress. Otherwise ends the run, and returns
    /// false.
    fn continues_run(
        &mut self,
        key: &Key,
        segment: &Segment<'_>,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) -> bool {
        let Some(mut run) = self.run.take() else {
            return false;
        };
        let continues = run.is_continued_by(key, segment)
            && self
                .parts(run.id, io, counters)
                .is_some_and(|(flow, mut cx)| flow.go_on(segment, &mut cx));
        if continues {
            run.go_on(segment);
            self.run = Some(run);
        }
        continues
    }

    /// Dial a flow with a key of [`free_port`](Self::free_port), whose packets have at most `mtu`
    /// bytes. There must be room for one.
    pub(crate) fn connect(
        &mut self,
        key: Key,
        mtu: usize,
        application: Box<dyn ByteStream>,
        now: Instant,
        counters: &mut Counters,
    ) -> Result<Token, ErrorCode> {
        if !self.memory.grants(key.peer, 2 * CHUNK) {
            counters.tcp_refused += 1;
            return Err(ErrorCode::LimitReached);
        }
        let token = self.flows.next_id().token(Protocol::Tcp);
        let mut flow = Flow::dialled(self.start(key, now), token, application);
        flow.set_mtu(mtu);
        let id = self.flows.insert(key, flow);
        self.dialled += 1;
        counters.tcp_dialled += 1;
        self.touch(id);
        Ok(token)
    }

    /// A key for a dialled connection that is not in use, and was not recently.
    pub(crate) fn free_port(
        &self,
        peer: PeerId,
        source: IpAddr,
        destination: SocketAddr,
        elsewhere: &Elsewhere,
    ) -> Option<Key> {
        port::candidates(&self.hash, self.dialled, peer, source, destination).find(|key| {
            self.flows.find(key).is_none()
                && self.time_wait.find(key).is_none()
                && !elsewhere.has(Protocol::Tcp, key)
        })
    }

    /// Refuse a packet that [`handle`](Self::handle) had no room for.
    pub(crate) fn refuse(
        &mut self,
        peer: PeerId,
        packet: &Packet<'_>,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        if let Some(segment) = Segment::parse(packet) {
            segment.send_reset(&segment.key(peer, packet), &mut self.buffer, io);
            counters.tcp_refused += 1;
        }
    }

    /// Handle a ready token: the application may take or have more.
    pub(crate) fn ready(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id) {
            flow.ready();
            self.touch(id);
        }
    }

    pub(crate) fn flush(&mut self, io: &mut Io<'_>, counters: &mut Counters) {
        self.current = None;
        self.run = None;
        let mut due = std::mem::take(&mut self.dirty);
        for id in due.drain(..) {
            self.service(id, io, counters);
        }
        // Flows that used up their turn; the list keeps its memory.
        due.append(&mut self.dirty);
        self.dirty = due;
        // Retry with the memory that other flows have released.
        self.retries = false;
        for _ in 0..self.starved.len().min(RETRIES) {
            let Some(id) = self.starved.pop_front() else {
                break;
            };
            if let Some(flow) = self.flows.get_mut(id) {
                flow.starved = false;
                self.service(id, io, counters);
            }
            self.retries |= !self.flows.get_mut(id).is_some_and(|flow| flow.starved);
        }
        self.retries &= !self.starved.is_empty();
        self.retry_at = (!self.starved.is_empty()).then(|| io.now + RETRY);
    }

    /// Returns true if a flow used up its turn and has more, or memory was released for one.
    pub(crate) fn has_more(&self) -> bool {
        !self.dirty.is_empty() || self.retries
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.timers.next(),
            self.half_open.deadline(),
            self.time_wait.deadline(),
            self.retry_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Mark the due flows for the next flush.
    pub(crate) fn expire(&mut self, now: Instant, counters: &mut Counters) {
        self.time_wait.expire(now);
        self.retries |= self.retry_at.take_if(|at| *at <= now).is_some();
        while let Some(id) = self.half_open.due(now) {
            self.remove(id);
            counters.tcp_half_open_expired += 1;
        }
        while let Some(id) = self.timers.pop_due(now) {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.alarm.rang();
                self.touch(id);
            }
        }
    }

    pub(crate) fn remove_peer(&mut self, peer: PeerId, io: &mut Io<'_>, counters: &mut Counters) {
        for id in self.flows.of_peer(peer) {
            if let Some((flow, mut cx)) = self.parts(id, io, counters) {
                flow.abort(&mut cx);
                self.remove(id);
            }
        }
        self.strays.forget(peer);
    }

    /// Reset the flows of a peer that were begun at this time or before and are unanswered, with
    /// this reason. Returns their number.
    pub(crate) fn fail_connecting(
        &mut self,
        peer: PeerId,
        begun: Instant,
        reason: &ErrorCode,
    ) -> usize {
        let mut failed = 0;
        for id in self.flows.of_peer(peer) {
            let flow = self.flows.get_mut(id).filter(|flow| flow.since <= begun);
            if flow.is_some_and(|flow| flow.fail_connecting(reason.clone())) {
                self.remove(id);
                failed += 1;
            }
        }
        failed
    }

    /// Process an ICMP error about a segment of a flow. Returns true if there is such a flow, and
    /// its state has changed.
    pub(crate) fn learn(&mut self, told: ReportedError) -> bool {
        let Some(id) = self.flows.find(&told.key) else {
            return false;
        };
        let Some(flow) = self.flows.get_mut(id) else {
            return false;
        };
        if !flow.has_in_flight(told.sequence) {
            return false;
        }
        match told.fate {
            Fate::Unreachable(reason) => {
                let failed = flow.fail_connecting(reason);
                if failed {
                    self.remove(id);
                }
                failed
            }
            Fate::TooBig(mtu) => {
                let news = flow.too_long(mtu);
                if news {
                    self.touch(id);
                }
                news
            }
        }
    }

    /// Make a flow for this SYN.
    fn admit(
        &mut self,
        key: Key,
        origin: &Origin,
        syn: &Segment<'_>,
        mtu: usize,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) -> FlowId {
        self.make_room(key.peer, io, counters);
        let id = self.flows.next_id();
        let token = id.token(Protocol::Tcp);
        let info = flow_info(origin, &key);
        let mut start = self.start(key, io.now);
        if let Some(last) = self.time_wait.remove(&key) {
            start.first = last.successor(start.first);
        }
        let mut flow = Flow::accepted(start, token, info, syn);
        flow.set_mtu(mtu);
        self.half_open.insert(key.peer, flow.since, id);
        self.flows.insert(key, flow)
    }

    /// Forget the oldest incomplete handshake if there are too many for another one of this peer.
    fn make_room(&mut self, peer: PeerId, io: &mut Io<'_>, counters: &mut Counters) {
        if let Some(id) = self.half_open.in_the_way(peer) {
            let flow = self.flows.get_mut(id);
            if flow.is_some_and(|flow| !flow.is_in_handshake()) {
                // It was completed just before, in the same batch. Serving it takes it off the
                // list.
                self.service(id, io, counters);
                return;
            }
            self.remove(id);
            counters.tcp_half_open_evicted += 1;
        }
    }

    /// The local side of a new connection.
    fn start(&self, key: Key, now: Instant) -> Start {
        Start {
            key,
            first: self.initial.of(&key, now),
            secret: self.initial.secret_of(&key),
            algorithm: self.algorithm,
            now,
        }
    }

    /// Answer a segment of a connection in TIME-WAIT. Returns false if there is no such connection,
    /// or a new one replaces it (RFC 9293 section 3.6.1).
    fn answer_late(&mut self, key: &Key, segment: &Segment<'_>, io: &mut Io<'_>) -> bool {
        let Some(mut last) = self.time_wait.find(key) else {
            return false;
        };
        if segment.opens() && last.precedes(segment) {
            return false;
        }
        // A reset changes nothing (RFC 1337), and answering an acknowledgement would start an
        // endless exchange.
        let repeats = !segment.resets() && segment.length() > 0;
        if repeats && self.strays.permits(key.peer, io.now) {
            if let Some(again) = last.again(segment, io.now) {
                self.time_wait.insert(*key, again);
                last = again;
            }
            segment::send_acknowledgement(key, last, 0, &mut self.buffer, io);
        }
        true
    }

    fn answer_stray(
        &mut self,
        key: &Key,
        segment: &Segment<'_>,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        if segment.resets() {
            return;
        }
        if self.strays.permits(key.peer, io.now) {
            segment.send_reset(key, &mut self.buffer, io);
            counters.tcp_strays_reset += 1;
        } else {
            counters.tcp_strays_ignored += 1;
        }
    }

    /// Deliver the received bytes of a flow before the next flow's packets. A batch may contain
    /// packets of many flows; in this way one buffer is used after another, and not as many as
    /// there are flows.
    fn change_to(&mut self, id: FlowId, io: &mut Io<'_>, counters: &mut Counters) {
        if let Some(last) = self.current.replace(id)
            && last != id
            && let Some((flow, mut cx)) = self.parts(last, io, counters)
        {
            flow.hand_over(&mut cx);
        }
    }

    fn service(&mut self, id: FlowId, io: &mut Io<'_>, counters: &mut Counters) {
        let Some((flow, mut cx)) = self.parts(id, io, counters) else {
            return;
        };
        flow.dirty = false;
        let was_half_open = flow.is_half_open();
        let verdict = flow.service(&mut cx);
        match verdict {
            Verdict::Gone => {
                self.remove(id);
                return;
            }
            Verdict::Ended(last) => {
                if let Some(key) = self.flows.key(id) {
                    self.time_wait.insert(*key, last);
                }
                self.remove(id);
                return;
            }
            Verdict::Wait | Verdict::Again | Verdict::Starved => {}
        }
        let now = cx.io.now;
        let mut deadline = flow.deadline(now);
        if verdict == Verdict::Wait && flow.is_stuck(deadline, now) {
            cx.counters.tcp_without_timer += 1;
            debug_assert!(false, "a flow that has bytes to send waits for nothing");
            deadline = Some(now + RETRY);
        }
        let (since, half_open) = (flow.since, flow.is_half_open());
        let starves = verdict == Verdict::Starved && !std::mem::replace(&mut flow.starved, true);
        if let Some(deadline) = deadline
            && let Some(flow) = self.flows.get_mut(id)
        {
            self.timers.schedule(id, &mut flow.alarm, deadline);
        }
        if was_half_open
            && !half_open
            && let Some(key) = self.flows.key(id)
        {
            self.half_open.remove(key.peer, since, id);
        }
        if starves {
            self.starved.push_back(id);
        }
        if verdict == Verdict::Again {
            self.touch(id);
        }
    }

    fn touch(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.dirty
        {
            flow.dirty = true;
            self.dirty.push(id);
        }
    }

    fn remove(&mut self, id: FlowId) {
        let Some((key, mut flow)) = self.flows.remove(id) else {
            return;
        };
        self.timers.cancel(id, &mut flow.alarm);
        self.half_open.remove(key.peer, flow.since, id);
        flow.release(&mut self.memory);
    }

    fn parts<'a, 'io>(
        &'a mut self,
        id: FlowId,
        io: &'a mut Io<'io>,
        counters: &'a mut Counters,
    ) -> Option<(&'a mut Flow, Context<'a, 'io>)> {
        let flow = self.flows.get_mut(id)?;
        let context = Context {
            buffer: &mut self.buffer,
            memory: &mut self.memory,
            io,
            counters,
        };
        Some((flow, context))
    }
}
