//! Handing over between generations of the module. `transport` uses it.
//!
//! The generation that serves reads from the device. A generation that begins to serve reads nothing until
//! its predecessor has listed its flows. From then on it passes the packets of those flows on to their
//! holders. A holder passes back what is not its own, such as the first packet of a new connection between
//! the same ends, and its own packets for the device.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{ErrorCode, Host, Instant, Mailbox, MessageInfo, Messages, StartOptions, Token};
use watm_netstack::{FlowKey, Netstack, PeerId, Protocol};

/// The content of a snapshot, by which a successor knows that this module lists its flows.
const SNAPSHOT: &[u8] = b"watm-tun 1";

/// The longest wait for the list of the predecessor: one that lives answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most that one receive takes: a call's worth of packets.
const RECEIVE_MESSAGES: u32 = 256;
const RECEIVE_BYTES: u32 = 1 << 20;

/// The first byte of a message.
const FLOWS: u8 = 1;
const PACKET: u8 = 2;
const RETURNED: u8 = 3;
const ANSWER: u8 = 4;

/// A message of another generation.
pub enum Letter {
    /// A packet of a flow that should be here.
    Packet(Vec<u8>),
    /// A packet that was passed on, and has no flow there.
    Returned(Vec<u8>),
    /// A packet for the device.
    Answer(Vec<u8>),
}

/// This generation's part in the handover.
pub struct Generations {
    own: u32,
    serving: u32,
    mailbox: Option<Box<dyn Mailbox>>,
    /// Messages that wait for the end of the call, or for room.
    waiting: Messages,
    /// True if there may be something to receive.
    readable: bool,
    /// The end of the wait for a list; `None`: it has come, or there is no predecessor.
    patience: Option<Instant>,
    /// The older generations that may have flows.
    holders: BTreeSet<u32>,
}

impl Generations {
    /// Takes the mailbox, if there is one. With a predecessor, another generation serves at first.
    pub fn start(
        options: &StartOptions,
        host: &mut dyn Host,
        token: Token,
    ) -> Result<Generations, ErrorCode> {
        let mailbox = match host.mailbox(token) {
            Ok(mailbox) => Some(mailbox),
            Err(ErrorCode::NotSupported) => None,
            Err(error) => return Err(error),
        };
        let follows = options.predecessor.as_deref() == Some(SNAPSHOT);
        Ok(Generations {
            own: options.generation,
            serving: match options.predecessor {
                Some(_) => options.generation.wrapping_sub(1),
                None => options.generation,
            },
            mailbox,
            waiting: Messages::default(),
            readable: false,
            patience: follows.then(|| host.now() + PATIENCE),
            holders: BTreeSet::new(),
        })
    }

    /// Returns what the next generation needs.
    pub fn snapshot() -> Vec<u8> {
        SNAPSHOT.to_vec()
    }

    /// Returns true if this generation takes new flows.
    pub fn is_serving(&self) -> bool {
        self.serving == self.own
    }

    /// Returns true if this generation may read from the device.
    pub fn may_receive(&self, now: Instant) -> bool {
        self.is_serving() && self.patience.is_none_or(|until| until <= now)
    }

    /// Notes which generation serves. One that no longer does lists its flows.
    pub fn serve(&mut self, generation: u32, netstack: &Netstack, now: Instant) {
        self.serving = generation;
        if generation == self.own {
            if let Some(until) = &mut self.patience {
                *until = now + PATIENCE;
            }
            return;
        }
        let mut list = vec![FLOWS];
        let known = netstack.known().map(|flow| (flow, self.own));
        for (flow, holder) in netstack.elsewhere().chain(known) {
            write_flow(&mut list, &flow, holder);
        }
        self.push(generation, &list);
    }

    /// Handles the mailbox's token.
    pub fn ready(&mut self) {
        self.readable = true;
    }

    /// Returns true if there may be something to receive.
    pub fn has_mail(&self) -> bool {
        self.readable
    }

    /// Returns the time at which the wait for a list ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.patience.filter(|_| self.is_serving())
    }

    /// Receives what one call takes. Lists go to the stack, packets are returned.
    pub fn receive(&mut self, netstack: &mut Netstack, now: Instant) -> Vec<Letter> {
        if self.patience.is_some_and(|until| until <= now) && self.is_serving() {
            self.patience = None;
        }
        let Some(mailbox) = self.mailbox.as_mut().filter(|_| self.readable) else {
            return Vec::new();
        };
        let mail = mailbox.receive(RECEIVE_MESSAGES, RECEIVE_BYTES);
        self.readable = !mail.messages.messages.is_empty() || !mail.ended.is_empty();
        let mut letters = Vec::new();
        for (from, message) in mail.messages.iter() {
            match message.split_first() {
                Some((&FLOWS, list)) => {
                    let mut rest = list;
                    while let Some((flow, holder)) = read_flow(&mut rest) {
                        if holder != self.own {
                            netstack.put_elsewhere(flow, holder);
                            self.holders.insert(holder);
                        }
                    }
                    self.holders.insert(from);
                    self.patience = None;
                }
                Some((&PACKET, packet)) => letters.push(Letter::Packet(packet.to_vec())),
                Some((&RETURNED, packet)) => letters.push(Letter::Returned(packet.to_vec())),
                Some((&ANSWER, packet)) => letters.push(Letter::Answer(packet.to_vec())),
                _ => {}
            }
        }
        for ended in mail.ended {
            netstack.forget_elsewhere(ended);
            self.holders.remove(&ended);
            if self.holders.is_empty() {
                self.patience = None;
            }
        }
        letters
    }

    /// Passes on a packet that has no flow here. Returns false if this generation must answer it.
    pub fn decline(&mut self, packet: &[u8], holder: Option<u32>, returned: bool) -> bool {
        let (to, kind) = match (self.is_serving(), holder) {
            (true, Some(holder)) if !returned => (holder, PACKET),
            (true, _) => return false,
            (false, _) => (self.serving, RETURNED),
        };
        self.push_packet(to, kind, packet);
        true
    }

    /// Passes on a packet for the device. Returns false if this generation serves.
    pub fn pass_on(&mut self, packet: &[u8]) -> bool {
        let drains = !self.is_serving();
        if drains {
            self.push_packet(self.serving, ANSWER, packet);
        }
        drains
    }

    /// Sends the messages of this call. Those without room wait for the mailbox's token.
    pub fn flush(&mut self) {
        let Some(mailbox) = &mut self.mailbox else {
            return self.waiting = Messages::default();
        };
        if self.waiting.messages.is_empty() {
            return;
        }
        let given = self.waiting.messages.len();
        // An error means that the batch is malformed, and repeating it does not help.
        let taken = mailbox.send(&self.waiting).map_or(given, |n| n as usize);
        let mut rest = Messages::default();
        for (to, message) in self.waiting.iter().skip(taken) {
            // A flood of packets waits no longer than a list.
            if message.first() == Some(&FLOWS) {
                push(&mut rest, to, message);
            }
        }
        self.waiting = rest;
    }

    fn push_packet(&mut self, to: u32, kind: u8, packet: &[u8]) {
        let mut message = Vec::with_capacity(1 + packet.len());
        message.push(kind);
        message.extend_from_slice(packet);
        self.push(to, &message);
    }

    fn push(&mut self, to: u32, message: &[u8]) {
        push(&mut self.waiting, to, message);
    }
}

fn push(messages: &mut Messages, to: u32, message: &[u8]) {
    messages.payload.extend_from_slice(message);
    messages.messages.push(MessageInfo {
        generation: to,
        len: u32::try_from(message.len()).expect("a message is shorter than 4 GiB"),
    });
}

/// Writes a flow: the holder, the protocol, and both ends.
fn write_flow(out: &mut Vec<u8>, flow: &FlowKey, holder: u32) {
    out.extend_from_slice(&holder.to_be_bytes());
    out.push(match flow.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    });
    for end in [flow.source, flow.destination] {
        match end.ip() {
            IpAddr::V4(address) => {
                out.push(4);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push(6);
                out.extend_from_slice(&address.octets());
            }
        }
        out.extend_from_slice(&end.port().to_be_bytes());
    }
}

fn read_flow(rest: &mut &[u8]) -> Option<(FlowKey, u32)> {
    let holder = u32::from_be_bytes(*take(rest)?);
    let protocol = match take::<1>(rest)? {
        [6] => Protocol::Tcp,
        [17] => Protocol::Udp,
        _ => return None,
    };
    let mut end = || {
        let address: IpAddr = match take::<1>(rest)? {
            [4] => (*take::<4>(rest)?).into(),
            [6] => (*take::<16>(rest)?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(address, u16::from_be_bytes(*take(rest)?)))
    };
    let (source, destination) = (end()?, end()?);
    let peer: PeerId = super::transport::PEER;
    Some((
        FlowKey {
            protocol,
            peer,
            source,
            destination,
        },
        holder,
    ))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(head)
}
