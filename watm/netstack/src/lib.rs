//! A network stack in user space for many peers, without IO of its own.
//!
//! The stack takes inner IP packets, and offers their content to the application as flows through
//! [`Host`], for any destination address and port. The application's answers leave as IP packets
//! for the peer that opened the flow. With [`Netstack::connect`] the application opens TCP flows
//! itself, and with [`Netstack::connect_datagrams`] UDP flows.
//!
//! # The run loop
//!
//! 1. Pass every packet of a batch to [`Netstack::handle_packet`] and every ready token that the
//!    stack [owns](Netstack::owns) to [`Netstack::handle_ready`], and call
//!    [`Netstack::handle_timeouts`] at the time of [`Netstack::poll_timeout`].
//! 2. Call [`Netstack::flush`] once: only then do acknowledgements, data and datagrams of the batch
//!    leave.
//! 3. Call [`Netstack::poll_timeout`] for the time of the next call.

mod config;
mod counters;
mod elsewhere;
mod hash;
mod icmp;
mod icmp_error;
mod io;
mod ip;
mod label;
mod limit;
mod offload;
mod port;
mod table;
mod tcp;
mod timer;
mod udp;

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

pub use config::{Algorithm, Config};
pub use elsewhere::FlowKey;
pub use ip::mark_congestion;
pub use offload::finish;
pub use table::Protocol;
use watm_core::packets::{Checksum, PacketInfo};
use watm_core::{ByteStream, DatagramFlow, ErrorCode, Host, Instant, Token};

use crate::counters::Counters;
use crate::elsewhere::{Admission, Elsewhere};
use crate::hash::Keyed;
use crate::icmp::{Icmp, Missing};
use crate::io::Io;
use crate::ip::{Fault, Outcome, Packet, Reassembly, Sender};
use crate::label::Labels;
use crate::table::FlowId;
use crate::tcp::NARROWEST;
use crate::tcp::Tcp;
use crate::udp::{Taken, Udp};

/// A peer's number. The owner of the stack chooses it, and never reuses it for another peer while
/// the stack has flows of the first.
pub type PeerId = u32;

/// The authenticated source of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The peer.
    pub peer: PeerId,
    /// The name that the application sees in [`FlowInfo::peer`](watm_core::FlowInfo::peer).
    pub name: Rc<str>,
    /// The outer addresses: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
}

/// Takes the IP packets that the stack sends.
pub trait PacketSink {
    /// Send an IP packet to this peer.
    fn send(&mut self, peer: PeerId, packet: &[u8]);

    /// Returns true if packets to this peer are better sent unfinished.
    fn finishes(&self, _peer: PeerId) -> bool {
        false
    }

    /// Send a packet whose checksum is partial, and which may stand for several.
    fn send_unfinished(&mut self, peer: PeerId, packet: &[u8], info: &PacketInfo) {
        finish(packet, info, |packet| self.send(peer, packet));
    }

    /// Returns true if another stack takes a packet that has no flow here: `holder`, if the stack
    /// [knows](Netstack::put_elsewhere) the flow's holder. Otherwise the stack answers it.
    fn decline(&mut self, _peer: PeerId, _packet: &[u8], _holder: Option<u32>) -> bool {
        false
    }
}

/// The stack. See the crate's documentation for the run loop.
pub struct Netstack {
    config: Config,
    tcp: Tcp,
    udp: Udp,
    icmp: Icmp,
    reassembly: Reassembly,
    sender: Sender,
    labels: Labels,
    elsewhere: Elsewhere,
    counters: Counters,
}

impl Netstack {
    /// Makes a stack without flows. `seed` determines sequence numbers and hash keys; it must be
    /// unpredictable to peers.
    pub fn new(config: Config, seed: u64, _: Instant) -> Self {
        let config = config.checked();
        let seeds = Keyed::new(seed);
        let hash = Keyed::new(seeds.hash_one("hash"));
        let sequence = seeds.hash_one("sequence");
        Netstack {
            tcp: Tcp::new(&config, sequence, hash),
            udp: Udp::new(config.udp_idle_timeout, hash),
            icmp: Icmp::new(hash),
            reassembly: Reassembly::new(hash),
            sender: Sender::new(config.mtu, seeds.hash_one("fragment") as u32),
            labels: Labels::new(seeds.hash_one("label")),
            elsewhere: Elsewhere::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// Replace the configuration: the limits for flows opened from now on, and the timeouts of all.
    /// A new MTU applies to all packets, but open TCP flows keep their announced MSS.
    pub fn reconfigure(&mut self, config: Config) {
        let config = config.checked();
        self.tcp.reconfigure(&config);
        self.udp.set_idle_timeout(config.udp_idle_timeout);
        self.sender.set_mtu(config.mtu);
        self.config = config;
        self.tcp.resize(None, &self.sender);
        self.udp.resize(None, &self.sender);
    }

    /// Set the MTU of the path to this peer, in bytes, below the one of the
    /// [configuration](Config::mtu); `None`: remove it. Packets of 576 bytes are sent in any case.
    /// TCP segments in flight that are too long are sent again in smaller segments. Open flows keep
    /// their announced MSS.
    pub fn set_path_mtu(&mut self, peer: PeerId, mtu: Option<usize>) {
        self.sender
            .set_path(peer, mtu.map(|mtu| mtu.max(NARROWEST)));
        self.tcp.resize(Some(peer), &self.sender);
        self.udp.resize(Some(peer), &self.sender);
    }

    /// Handle an inner IP packet from an authenticated peer, whose source address the caller has
    /// checked.
    pub fn handle_packet(
        &mut self,
        origin: &Origin,
        packet: &[u8],
        host: &mut dyn Host,
        sink: &mut dyn PacketSink,
    ) {
        self.handle_unfinished(origin, packet, &PacketInfo::default(), host, sink);
    }

    /// Like [`handle_packet`](Self::handle_packet), for a packet whose checksum may be verified or
    /// partial, and which may stand for several.
    pub fn handle_unfinished(
        &mut self,
        origin: &Origin,
        packet: &[u8],
        info: &PacketInfo,
        host: &mut dyn Host,
        sink: &mut dyn PacketSink,
    ) {
        let io = &mut Io::new(host, sink, self.labels);
        let Some(mut packet) = self.read(origin.peer, packet, io) else {
            return;
        };
        let Some(fragment) = packet.fragment else {
            packet.verified = info.checksum != Checksum::Complete;
            packet.segment_size = info.segment_size;
            if packet.segment_size.is_none() || packet.protocol == ip::TCP {
                self.carry(origin, &packet, io);
                return;
            }
            offload::divide(&packet, |piece| {
                if let Some(piece) = self.read(origin.peer, piece, io) {
                    self.carry(origin, &piece, io);
                }
            });
            return;
        };
        self.counters.fragments_in += 1;
        let (outcome, expired) = self.reassembly.add(origin.peer, &packet, fragment, io.now);
        self.counters.fragments_expired += expired;
        match outcome {
            Outcome::Kept => {}
            Outcome::Dropped => self.counters.fragments_dropped += 1,
            Outcome::Whole(whole) => match self.read(origin.peer, &whole, io) {
                Some(packet) if packet.fragment.is_none() => {
                    self.counters.fragments_reassembled += 1;
                    self.carry(origin, &packet, io);
                }
                // Fragments within fragments.
                Some(_) => self.counters.ip_malformed += 1,
                None => {}
            },
        }
    }

    /// Reset the streams of connections to a peer that [`connect`](Self::connect) began at this
    /// time or before and that are unanswered, with this reason. Returns their number.
    pub fn fail_connecting(&mut self, peer: PeerId, begun: Instant, reason: &ErrorCode) -> usize {
        self.tcp.fail_connecting(peer, begun, reason)
    }

    /// Open a TCP connection through the peer, for a stream of the application: from an address of
    /// this side, to an address behind the peer. Returns the stream's token. The stream is reset if
    /// there is no answer within a minute, or if the connection is refused.
    ///
    /// # Errors
    ///
    /// - [`ErrorCode::InvalidArgument`]: an address is not a host's, the families differ, or the
    ///   port is 0.
    /// - [`ErrorCode::LimitReached`]: there are too many flows, no free ports, or no memory.
    pub fn connect(
        &mut self,
        origin: &Origin,
        source: IpAddr,
        destination: SocketAddr,
        application: Box<dyn ByteStream>,
        now: Instant,
    ) -> Result<Token, ErrorCode> {
        check_ends(source, destination)?;
        let peer = origin.peer;
        let share = self.tcp.len_of(peer) < self.config.max_tcp_of_a_peer();
        let full = self.tcp.len() + self.udp.len() >= self.config.max_flows;
        if !share || full && !self.evict_for(peer) {
            self.counters.tcp_refused += 1;
            return Err(ErrorCode::LimitReached);
        }
        let key = self
            .tcp
            .free_port(peer, source, destination, &self.elsewhere)
            .ok_or(ErrorCode::LimitReached)?;
        let mtu = self.sender.mtu(peer);
        self.tcp
            .connect(key, mtu, application, now, &mut self.counters)
    }

    /// Like [`connect`](Self::connect), for datagrams: answers from `destination` are delivered
    /// until the flow has been idle for [`Config::udp_idle_timeout`]. The application is told the
    /// longest datagram that fits one packet; longer ones are fragmented. Datagrams that are too
    /// large for IP are dropped and counted.
    pub fn connect_datagrams(
        &mut self,
        origin: &Origin,
        source: IpAddr,
        destination: SocketAddr,
        application: Box<dyn DatagramFlow>,
        now: Instant,
    ) -> Result<Token, ErrorCode> {
        check_ends(source, destination)?;
        let full = self.tcp.len() + self.udp.len() >= self.config.max_flows;
        if full && !self.evict_for(origin.peer) {
            self.counters.udp_refused += 1;
            return Err(ErrorCode::LimitReached);
        }
        let key = self
            .udp
            .free_port(origin.peer, source, destination, &self.elsewhere)
            .ok_or(ErrorCode::LimitReached)?;
        let mtu = self.sender.mtu(origin.peer);
        Ok(self
            .udp
            .connect(key, mtu, application, now, &mut self.counters))
    }

    /// Returns true if the stack chose this token. Its tokens, and no others, have the top bit set.
    pub fn owns(&self, token: Token) -> bool {
        FlowId::from_token(token).is_some()
    }

    /// Make progress on the flow with this token. Tokens of flows that are gone are ignored.
    pub fn handle_ready(&mut self, token: Token, _: &mut dyn Host, _: &mut dyn PacketSink) {
        match FlowId::from_token(token) {
            Some((Protocol::Tcp, id)) => self.tcp.ready(id),
            Some((Protocol::Udp, id)) => self.udp.ready(id),
            None => {}
        }
    }

    /// Do the work that is due by [`Host::now`].
    pub fn handle_timeouts(&mut self, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let io = &mut Io::new(host, sink, self.labels);
        let counters = &mut self.counters;
        self.tcp.expire(io.now, counters);
        self.udp.expire(io.now, counters);
        while let Some(expired) = self.reassembly.expire(io.now) {
            counters.fragments_expired += 1;
            self.icmp
                .report_expired(&expired, &mut self.sender, io, counters);
        }
    }

    /// Move the bytes that the calls since the last flush have announced, and send the resulting
    /// packets. A flow with much to send may leave some for the next flush; then
    /// [`poll_timeout`](Self::poll_timeout) is in the past.
    pub fn flush(&mut self, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let io = &mut Io::new(host, sink, self.labels);
        self.udp.flush(&mut self.sender, io, &mut self.counters);
        self.tcp.flush(io, &mut self.counters);
    }

    /// The time at which [`handle_timeouts`](Self::handle_timeouts) and [`flush`](Self::flush) must
    /// be called. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.tcp.has_more() || self.udp.has_more() {
            return Some(Instant(0));
        }
        let deadlines = [
            self.tcp.deadline(),
            self.udp.deadline(),
            self.reassembly.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Reset the flows of a peer that was removed.
    pub fn remove_peer(&mut self, peer: PeerId, host: &mut dyn Host, sink: &mut dyn PacketSink) {
        let io = &mut Io::new(host, sink, self.labels);
        self.tcp.remove_peer(peer, io, &mut self.counters);
        self.udp.remove_peer(peer);
        self.icmp.forget(peer);
        self.reassembly.forget(peer);
        self.sender.set_path(peer, None);
        self.elsewhere.forget_peer(peer);
    }

    /// Record that another stack has this flow: its packets are [declined](PacketSink::decline),
    /// and no dialled connection uses its addresses. Of several holders the last one counts. Beyond
    /// some hundred thousand flows nothing is remembered.
    pub fn put_elsewhere(&mut self, flow: FlowKey, holder: u32) {
        self.elsewhere.insert(flow, holder);
    }

    /// Forget the flows of this holder.
    pub fn forget_elsewhere(&mut self, holder: u32) {
        self.elsewhere.forget_holder(holder);
    }

    /// The flows here, including TCP connections that have just ended, whose last packets may need
    /// another answer.
    pub fn known(&self) -> impl Iterator<Item = FlowKey> {
        let tcp = self.tcp.keys().map(|key| key.of(Protocol::Tcp));
        tcp.chain(self.udp.keys().map(|key| key.of(Protocol::Udp)))
    }

    /// The known flows of other stacks, with their holders.
    pub fn elsewhere(&self) -> impl Iterator<Item = (FlowKey, u32)> {
        self.elsewhere.iter()
    }

    /// Offer new flows to the application, or stop. A stack that has stopped, and whose sink
    /// declines packets without a flow, ends with its flows.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.udp.accepting = accepting;
    }

    /// Returns true if nothing is left to answer: no flows, and no connections in TIME-WAIT.
    pub fn is_idle(&self) -> bool {
        self.flows() == 0 && !self.tcp.has_late()
    }

    /// The number of flows.
    pub fn flows(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }

    /// Bytes of TCP buffers in existence; never more than [`Config::buffer_budget`].
    pub fn held_bytes(&self) -> usize {
        self.tcp.held()
    }

    /// The counters by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.iter()
    }

    fn read<'a>(&mut self, peer: PeerId, packet: &'a [u8], io: &mut Io<'_>) -> Option<Packet<'a>> {
        let fault = match Packet::parse(packet) {
            Ok(packet) => return Some(packet),
            Err(fault) => fault,
        };
        let counter = match fault {
            Fault::Malformed => &mut self.counters.ip_malformed,
            Fault::BadAddress => &mut self.counters.ip_bad_address,
            Fault::Multicast => &mut self.counters.ip_multicast,
            Fault::Problem(problem) => {
                let (sender, counters) = (&mut self.sender, &mut self.counters);
                self.icmp
                    .complain(peer, packet, problem, sender, io, counters);
                &mut self.counters.ip_malformed
            }
        };
        *counter += 1;
        None
    }

    /// Make room for a flow of this peer. Returns true if a UDP flow was removed.
    fn evict_for(&mut self, peer: PeerId) -> bool {
        let share = self.config.udp_share_of_a_peer();
        self.udp.evict(peer, share, &mut self.counters)
    }

    fn carry(&mut self, origin: &Origin, packet: &Packet<'_>, io: &mut Io<'_>) {
        let (peer, counters, sender) = (origin.peer, &mut self.counters, &mut self.sender);
        let elsewhere = &mut self.elsewhere;
        let udp_share = self.config.udp_share_of_a_peer();
        match (packet.protocol, packet.source) {
            (ip::TCP, _) => {
                let share = self.tcp.len_of(peer) < self.config.max_tcp_of_a_peer();
                let room = share && self.tcp.len() + self.udp.len() < self.config.max_flows;
                let (tcp, first) = (&mut self.tcp, Admission { room, elsewhere });
                if tcp.handle(origin, packet, first, sender, io, counters) {
                    return;
                }
                let room = share && self.udp.evict(peer, udp_share, counters);
                let second = Admission { room, elsewhere };
                if !room || !tcp.handle(origin, packet, second, sender, io, counters) {
                    self.tcp.refuse(peer, packet, io, counters);
                }
            }
            (ip::UDP, _) => {
                let room = self.tcp.len() + self.udp.len() < self.config.max_flows;
                let (udp, first) = (&mut self.udp, Admission { room, elsewhere });
                let mut taken = udp.handle(origin, packet, first, io, counters);
                if taken == Taken::NoRoom && udp.evict(peer, udp_share, counters) {
                    let room = true;
                    let second = Admission { room, elsewhere };
                    taken = udp.handle(origin, packet, second, io, counters);
                }
                match taken {
                    Taken::Done => return,
                    Taken::NoRoom => {}
                    Taken::Unwanted => {
                        let (icmp, missing) = (&mut self.icmp, Missing::Port);
                        icmp.refuse(peer, packet, missing, sender, io, counters);
                    }
                }
                counters.udp_refused += 1;
            }
            (ip::NOTHING, IpAddr::V6(_)) => counters.ip_empty += 1,
            _ if io.sink.decline(peer, packet.whole, None) => {}
            (ip::ICMP, IpAddr::V4(_)) | (ip::ICMPV6, IpAddr::V6(_)) => {
                if icmp::is_sound(packet)
                    && let Some(told) = icmp_error::of_packet(peer, packet)
                    && match told.protocol {
                        Protocol::Tcp => self.tcp.learn(told),
                        Protocol::Udp => self.udp.learn(told, sender),
                    }
                {
                    counters.icmp_heeded += 1;
                    return;
                }
                self.icmp.handle(peer, packet, sender, io.sink, counters);
            }
            _ => {
                let (icmp, missing) = (&mut self.icmp, Missing::Protocol);
                icmp.refuse(peer, packet, missing, sender, io, counters);
            }
        }
    }
}

/// Checks that a flow between these ends is possible.
fn check_ends(source: IpAddr, destination: SocketAddr) -> Result<(), ErrorCode> {
    let sound = source.is_ipv4() == destination.is_ipv4()
        && destination.port() != 0
        && ip::is_host(source)
        && ip::is_host(destination.ip());
    match sound {
        true => Ok(()),
        false => Err(ErrorCode::InvalidArgument),
    }
}
