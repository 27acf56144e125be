//! UDP (RFC 768): a flow for each peer and 4-tuple, until it is idle for too long.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use smoltcp::wire::{UDP_HEADER_LEN, UdpPacket};
use watm_core::{DatagramFlow, Datagrams, FlowInfo, FlowKind, Instant, Token};

use crate::counters::Counters;
use crate::elsewhere::{Admission, Elsewhere};
use crate::hash::{Keyed, Map};
use crate::icmp_error::{Fate, ReportedError};
use crate::io::{Io, flow_info};
use crate::ip::{self, Packet, Path, Sender, checksum};
use crate::table::{FlowId, Key, Protocol, Table};
use crate::tcp::NARROWEST;
use crate::timer::{Alarm, Timers};
use crate::{Origin, PeerId, port};

/// The most datagrams, and bytes, that are handed to the application at once: as many as one batch
/// of the outer socket can carry.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 128 << 10;
/// The datagrams taken from one flow before the next has its turn.
const BUDGET: usize = 256;
/// The spare buffers for batches: flows in one batch are rarely more.
const SPARE: usize = 32;

/// The outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was handled.
    Done,
    /// It would open a flow, and there is no room for one.
    NoRoom,
    /// The application takes no datagrams for its destination.
    Unwanted,
}

/// The UDP part of the stack.
pub(crate) struct Udp {
    flows: Table<Flow>,
    /// The hash that chooses ports.
    hash: Keyed,
    /// The number of dialled flows.
    dialled: u64,
    timers: Timers,
    /// The same timers by peer, for peers with flows.
    timers_of: Map<PeerId, Timers>,
    idle_timeout: Duration,
    /// Flows with something to do in the next flush, each at most once.
    dirty: Vec<FlowId>,
    spare: Vec<Datagrams>,
    /// True if flows may be opened.
    pub accepting: bool,
}

struct Flow {
    flow: Box<dyn DatagramFlow>,
    /// The description given to the application, unless it dialled the flow: a dialled flow is not
    /// offered again.
    info: Option<Rc<FlowInfo>>,
    /// The datagrams for the application since the last flush.
    pending: Datagrams,
    /// The path MTU to its destination, as far as routers behind the peer have reported it.
    path: usize,
    /// True if IPv4 routers may fragment the packets (DF is clear), because the path is narrower
    /// than that.
    may_fragment: bool,
    /// The time of the last datagram, in either direction.
    used: Instant,
    alarm: Alarm,
    /// The alarm among those of its peer.
    alarm_of_peer: Alarm,
    /// True if the application may have something.
    readable: bool,
    dirty: bool,
}

impl Udp {
    pub(crate) fn new(idle_timeout: Duration, hash: Keyed) -> Self {
        Udp {
            flows: Table::new(hash),
            timers_of: Map::with_hasher(hash),
            hash,
            dialled: 0,
            timers: Timers::default(),
            idle_timeout,
            dirty: Vec::new(),
            spare: Vec::new(),
            accepting: true,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The keys of the flows.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.flows.iter().map(|(_, key, _)| key)
    }

    /// Change the timeout, of open flows too.
    pub(crate) fn set_idle_timeout(&mut self, idle_timeout: Duration) {
        self.idle_timeout = idle_timeout;
        for (id, peer) in self.flows.of(None) {
            self.schedule(id, peer);
        }
    }

    /// Process a packet. If there is no room for the flow that it would open, the caller may make
    /// some and try again.
    pub(crate) fn handle(
        &mut self,
        origin: &Origin,
        packet: &Packet<'_>,
        admission: Admission<'_>,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) -> Taken {
        let Some(datagram) = parse(packet) else {
            counters.udp_malformed += 1;
            return Taken::Done;
        };
        let key = Key {
            peer: origin.peer,
            source: SocketAddr::new(packet.source, datagram.src_port()),
            destination: SocketAddr::new(packet.destination, datagram.dst_port()),
        };
        let id = match self.flows.find(&key) {
            Some(id) => id,
            None if admission
                .elsewhere
                .takes(Protocol::Udp, &key, packet, io.sink) =>
            {
                return Taken::Done;
            }
            None if !io
                .host
                .accepts(FlowKind::Datagrams, &key.destination.into()) =>
            {
                return Taken::Unwanted;
            }
            None if !admission.room => return Taken::NoRoom,
            None => {
                let info = Rc::new(flow_info(origin, &key));
                match self.open(key, info, io, counters) {
                    Some(id) => id,
                    None => {
                        counters.udp_refused += 1;
                        return Taken::Done;
                    }
                }
            }
        };
        let payload = datagram.payload();
        let flow = self.flows.get_mut(id).expect("found or opened above");
        flow.used = io.now;
        let full = flow.pending.lengths.len() >= BATCH
            || flow.pending.payload.len() + payload.len() > BATCH_BYTES;
        if full && !flow.pending.lengths.is_empty() {
            self.deliver(id, io, counters);
        }
        // The application may have closed the flow meanwhile.
        if let Some(flow) = self.flows.get_mut(id) {
            if flow.pending.lengths.is_empty() {
                flow.pending = self.spare.pop().unwrap_or_default();
            }
            flow.pending.push(payload);
            self.touch(id);
        } else {
            counters.udp_dropped += 1;
        }
        Taken::Done
    }

    /// Carry a flow of the application with a free key, in packets of at most `mtu` bytes.
    pub(crate) fn connect(
        &mut self,
        key: Key,
        mtu: usize,
        mut application: Box<dyn DatagramFlow>,
        now: Instant,
        counters: &mut Counters,
    ) -> Token {
        application.set_longest(longest(&key, mtu));
        let token = self.flows.next_id().token(Protocol::Udp);
        self.insert(key, application, None, now);
        self.dialled += 1;
        counters.udp_dialled += 1;
        token
    }

    /// Update the MTU of the path to one peer, or of all, and inform dialled flows.
    pub(crate) fn resize(&mut self, peer: Option<PeerId>, sender: &Sender) {
        for (id, peer) in self.flows.of(peer) {
            if let Some(key) = self.flows.key(id).copied()
                && let Some(flow) = self.flows.get_mut(id)
                && flow.info.is_none()
            {
                let mtu = flow.path.min(sender.mtu(peer));
                flow.flow.set_longest(longest(&key, mtu));
            }
        }
    }

    /// Process an ICMP error about a datagram of a flow. Returns true if there is such a flow, and
    /// its state has changed.
    pub(crate) fn learn(&mut self, told: ReportedError, sender: &Sender) -> bool {
        let Fate::TooBig(mtu) = told.fate else {
            return false;
        };
        let key = &told.key;
        let flow = self.flows.find(key).and_then(|id| self.flows.get_mut(id));
        let Some(flow) = flow else {
            return false;
        };
        // A lower bound keeps forged reports from making a flow send tiny packets: see `Width`.
        let least = match key.source.is_ipv4() {
            true => NARROWEST,
            false => ip::LEAST_MTU_V6,
        };
        let news = mtu < flow.path.min(sender.mtu(key.peer)) && !flow.may_fragment;
        if news {
            flow.may_fragment = mtu < least;
            flow.path = mtu.max(least);
            if flow.info.is_none() {
                flow.flow.set_longest(longest(key, flow.path));
            }
        }
        news
    }

    /// A key for a dialled flow that is not in use.
    pub(crate) fn free_port(
        &self,
        peer: PeerId,
        source: IpAddr,
        destination: SocketAddr,
        elsewhere: &Elsewhere,
    ) -> Option<Key> {
        port::candidates(&self.hash, self.dialled, peer, source, destination)
            .find(|key| self.flows.find(key).is_none() && !elsewhere.has(Protocol::Udp, key))
    }

    /// Handle a ready token: the application may take or have more.
    pub(crate) fn ready(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id) {
            flow.readable = true;
            self.touch(id);
        }
    }

    pub(crate) fn flush(&mut self, sender: &mut Sender, io: &mut Io<'_>, counters: &mut Counters) {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.dirty = false;
            }
            self.deliver(id, io, counters);
            self.collect(id, sender, io, counters);
        }
    }

    /// Returns true if a flow used up its turn and has more.
    pub(crate) fn has_more(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// End flows after their idle timeout.
    pub(crate) fn expire(&mut self, now: Instant, counters: &mut Counters) {
        while let Some(id) = self.timers.pop_due(now) {
            let Some(flow) = self.flows.get_mut(id) else {
                continue;
            };
            flow.alarm.rang();
            let deadline = flow.used + self.idle_timeout;
            if deadline > now {
                self.timers.schedule(id, &mut flow.alarm, deadline);
            } else {
                self.remove(id);
                counters.udp_expired += 1;
            }
        }
    }

    /// End a flow to make room for one of `peer`: the idlest flow of that peer if it has more than
    /// its share, or else of another peer that has, or else of all. Returns false if there is none.
    pub(crate) fn evict(&mut self, peer: PeerId, share: usize, counters: &mut Counters) -> bool {
        let held = self.flows.len_of(peer);
        let greedy = match held > share {
            true => Some((held, peer)),
            false => self
                .flows
                .most_of_a_peer()
                .filter(|(held, _)| *held > share),
        };
        let idlest = match greedy {
            Some((_, peer)) => self.idlest_of(peer),
            None => self.idlest(),
        };
        if let Some(id) = idlest {
            self.remove(id);
            counters.udp_evicted += 1;
        }
        idlest.is_some()
    }

    /// The flow that has been idle longest.
    fn idlest(&mut self) -> Option<FlowId> {
        // Alarms are never late, so the first exact alarm belongs to the idlest flow.
        while let Some(at) = self.timers.next() {
            let id = self.timers.pop()?;
            let Some(flow) = self.flows.get_mut(id) else {
                continue;
            };
            flow.alarm.rang();
            let deadline = flow.used + self.idle_timeout;
            if deadline <= at {
                return Some(id);
            }
            self.timers.schedule(id, &mut flow.alarm, deadline);
        }
        None
    }

    /// The same, among the flows of a peer.
    fn idlest_of(&mut self, peer: PeerId) -> Option<FlowId> {
        let timers = self.timers_of.get_mut(&peer)?;
        while let Some(at) = timers.next() {
            let id = timers.pop()?;
            let Some(flow) = self.flows.get_mut(id) else {
                continue;
            };
            flow.alarm_of_peer.rang();
            let deadline = flow.used + self.idle_timeout;
            if deadline <= at {
                return Some(id);
            }
            timers.schedule(id, &mut flow.alarm_of_peer, deadline);
        }
        None
    }

    pub(crate) fn remove_peer(&mut self, peer: PeerId) {
        for id in self.flows.of_peer(peer) {
            self.remove(id);
        }
    }

    fn open(
        &mut self,
        key: Key,
        info: Rc<FlowInfo>,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) -> Option<FlowId> {
        let token = self.flows.next_id().token(Protocol::Udp);
        let flow = io.host.open_datagrams(&info, token).ok()?;
        counters.udp_opened += 1;
        Some(self.insert(key, flow, Some(info), io.now))
    }

    fn insert(
        &mut self,
        key: Key,
        flow: Box<dyn DatagramFlow>,
        info: Option<Rc<FlowInfo>>,
        now: Instant,
    ) -> FlowId {
        let id = self.flows.insert(
            key,
            Flow {
                flow,
                info,
                pending: Datagrams::default(),
                path: usize::MAX,
                may_fragment: false,
                used: now,
                alarm: Alarm::default(),
                alarm_of_peer: Alarm::default(),
                // A new flow is armed: its token comes when there is something.
                readable: false,
                dirty: false,
            },
        );
        self.schedule(id, key.peer);
        id
    }

    /// Set the alarm for the idle timeout of a flow of this peer.
    fn schedule(&mut self, id: FlowId, peer: PeerId) {
        if let Some(flow) = self.flows.get_mut(id) {
            let deadline = flow.used + self.idle_timeout;
            self.timers.schedule(id, &mut flow.alarm, deadline);
            let timers = self.timers_of.entry(peer).or_default();
            timers.schedule(id, &mut flow.alarm_of_peer, deadline);
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

    /// Hand over the pending datagrams. If the application has closed the flow, it is offered
    /// again: a 4-tuple stays usable.
    fn deliver(&mut self, id: FlowId, io: &mut Io<'_>, counters: &mut Counters) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        if flow.pending.lengths.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut flow.pending);
        let mut accepted = flow.flow.send(&pending);
        if accepted.is_err()
            && let Some((key, flow)) = self.remove(id)
            && self.accepting
            && let Some(info) = flow.info
            && let Some(id) = self.open(key, info, io, counters)
            && let Some(flow) = self.flows.get_mut(id)
        {
            accepted = flow.flow.send(&pending);
            self.touch(id);
        }
        let accepted = accepted.map_or(0, |count| count as usize);
        counters.udp_dropped += pending.lengths.len().saturating_sub(accepted) as u64;
        if self.spare.len() < SPARE {
            pending.payload.clear();
            pending.lengths.clear();
            self.spare.push(pending);
        }
    }

    /// Send the datagrams of the application.
    fn collect(
        &mut self,
        id: FlowId,
        sender: &mut Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        let mut left = BUDGET;
        loop {
            let Some(flow) = self.flows.get_mut(id) else {
                return;
            };
            if !flow.readable {
                return;
            }
            if left == 0 {
                self.touch(id);
                return;
            }
            let received = flow.flow.receive(BATCH as u32, BATCH_BYTES as u32);
            let Ok(Some(datagrams)) = received else {
                self.remove(id);
                return;
            };
            if datagrams.lengths.is_empty() {
                flow.readable = false;
                return;
            }
            flow.used = io.now;
            left = left.saturating_sub(datagrams.lengths.len());
            let (mtu, may_fragment) = (flow.path, flow.may_fragment);
            let Some(key) = self.flows.key(id) else {
                return;
            };
            let path = Path::of_flow(mtu, io.labels.of(key), may_fragment);
            for datagram in datagrams.iter() {
                if !send(key, datagram, path, sender, io) {
                    counters.udp_too_large += 1;
                }
            }
        }
    }

    fn remove(&mut self, id: FlowId) -> Option<(Key, Flow)> {
        let (key, mut flow) = self.flows.remove(id)?;
        self.timers.cancel(id, &mut flow.alarm);
        if let Some(timers) = self.timers_of.get_mut(&key.peer) {
            timers.cancel(id, &mut flow.alarm_of_peer);
        }
        if self.flows.len_of(key.peer) == 0 {
            self.timers_of.remove(&key.peer);
        }
        Some((key, flow))
    }
}

/// The longest datagram of a flow that fits into a packet of this many bytes.
fn longest(key: &Key, mtu: usize) -> u32 {
    let headers = ip::header_len(key.source.ip()) + UDP_HEADER_LEN;
    u32::try_from(mtu.saturating_sub(headers)).unwrap_or(u32::MAX)
}

fn parse<'a>(packet: &Packet<'a>) -> Option<UdpPacket<&'a [u8]>> {
    let datagram = UdpPacket::new_checked(packet.payload).ok()?;
    // IPv6 allows datagrams without a checksum between tunnel ends only (RFC 8200 section 8.1).
    let bare = datagram.checksum() == 0 && packet.source.is_ipv6();
    let message = &packet.payload[..datagram.len().into()];
    let sound = !bare
        && datagram.src_port() != 0
        && datagram.dst_port() != 0
        && (packet.verified
            || datagram.checksum() == 0
            || checksum::transport(message, packet.source, packet.destination, ip::UDP)
                == u16::MAX);
    sound.then_some(datagram)
}

/// Sends a datagram on this path.
fn send(key: &Key, datagram: &[u8], path: Path, sender: &mut Sender, io: &mut Io<'_>) -> bool {
    let (source, destination) = (key.destination, key.source);
    let Ok(length) = u16::try_from(UDP_HEADER_LEN + datagram.len()) else {
        return false;
    };
    let addresses = (source.ip(), destination.ip());
    sender.send(path, key.peer, io.sink, addresses, ip::UDP, |out| {
        let start = out.len();
        out.resize(start + UDP_HEADER_LEN, 0);
        out.extend_from_slice(datagram);
        let mut header = UdpPacket::new_unchecked(&mut out[start..]);
        header.set_src_port(source.port());
        header.set_dst_port(destination.port());
        header.set_len(length);
        header.set_checksum(0);
        let (source, destination) = addresses;
        let sum = checksum::transport(header.into_inner(), source, destination, ip::UDP);
        // All zeros would mean that there is no checksum (RFC 768).
        let sum = if sum == u16::MAX { sum } else { !sum };
        UdpPacket::new_unchecked(&mut out[start..]).set_checksum(sum);
    })
}
