//! A device and an application of the test.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::packets::{Offloads, PacketBatch, PacketDevice, PacketInfo, set_provider};
use watm_core::{
    ByteStream, DatagramFlow, DatagramSocket, Datagrams, Direction, ErrorCode, FlowInfo, Host,
    Instant, Level, Listener, Mail, Mailbox, MessageInfo, Messages, StartOptions, Token, Transport,
    Wakeup,
};
use watm_tun::Tun;

pub const PROGRAM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// A packet, and what it leaves to the other side.
pub type Entry = (Vec<u8>, PacketInfo);

/// The device of this thread.
#[derive(Default)]
struct Shared {
    to_module: VecDeque<Entry>,
    from_module: Vec<Entry>,
    gone: bool,
    granted: bool,
    /// The offloads that it has.
    offloads: Offloads,
    /// The most packets that it takes at once.
    room: Option<usize>,
}

thread_local! {
    static DEVICE: RefCell<Shared> = RefCell::default();
}

struct Device;

impl PacketDevice for Device {
    fn receive(&mut self, max_packets: u32, max_bytes: u32) -> Result<PacketBatch, ErrorCode> {
        DEVICE.with_borrow_mut(|device| {
            let mut batch = PacketBatch::default();
            while batch.packets.len() < max_packets as usize
                && batch.payload.len() < max_bytes as usize
                && let Some((packet, info)) = device.to_module.pop_front()
            {
                batch.push_unfinished(&packet, info);
            }
            match device.gone && batch.is_empty() {
                true => Err(ErrorCode::ConnectionAborted),
                false => Ok(batch),
            }
        })
    }

    fn send(&mut self, batch: &PacketBatch) -> Result<u32, ErrorCode> {
        DEVICE.with_borrow_mut(|device| {
            let packets = batch.iter().map(|(info, packet)| (packet.to_vec(), *info));
            let taken = device.room.unwrap_or(usize::MAX).min(batch.packets.len());
            device.from_module.extend(packets.take(taken));
            Ok(taken as u32)
        })
    }

    fn set_offloads(&mut self, wanted: Offloads) -> Offloads {
        let has = DEVICE.with_borrow(|device| device.offloads);
        Offloads {
            checksum: wanted.checksum && has.checksum,
            tcp_segments: wanted.tcp_segments && has.tcp_segments,
            udp_segments: wanted.udp_segments && has.udp_segments,
        }
    }

    fn mtu(&self) -> u32 {
        1500
    }
}

fn open(label: &str, _: Token) -> Result<Box<dyn PacketDevice>, ErrorCode> {
    match label == "tun" && DEVICE.with_borrow(|device| device.granted) {
        true => Ok(Box::new(Device)),
        false => Err(ErrorCode::AccessDenied),
    }
}

/// Has a device, which is there and was granted.
pub fn grant() {
    set_provider(Some(open));
    DEVICE.with_borrow_mut(|device| {
        *device = Shared {
            granted: true,
            ..Shared::default()
        };
    });
}

/// Has a device with all offloads.
pub fn grant_with_offloads() {
    grant();
    DEVICE.with_borrow_mut(|device| {
        device.offloads = Offloads {
            checksum: true,
            tcp_segments: true,
            udp_segments: true,
        };
    });
}

/// Has a device that was not granted.
pub fn refuse() {
    set_provider(Some(open));
    DEVICE.take();
}

/// Deletes the device.
pub fn delete() {
    DEVICE.with_borrow_mut(|device| device.gone = true);
}

/// Lets the device take only so many packets at once.
pub fn limit(room: usize) {
    DEVICE.with_borrow_mut(|device| device.room = Some(room));
}

pub fn arrive(packet: Vec<u8>) {
    arrive_unfinished(packet, PacketInfo::default());
}

pub fn arrive_unfinished(packet: Vec<u8>, info: PacketInfo) {
    DEVICE.with_borrow_mut(|device| device.to_module.push_back((packet, info)));
}

pub fn sent() -> Vec<Vec<u8>> {
    let entries = sent_entries().into_iter();
    entries.map(|(packet, _)| packet).collect()
}

pub fn sent_entries() -> Vec<Entry> {
    DEVICE.with_borrow_mut(|device| std::mem::take(&mut device.from_module))
}

/// The application's end of a datagram flow.
#[derive(Default)]
pub struct End {
    pub to_module: VecDeque<Vec<u8>>,
    pub from_module: Vec<Vec<u8>>,
    pub ended: bool,
}

pub struct Flow(pub Rc<RefCell<End>>);

impl DatagramFlow for Flow {
    fn receive(&mut self, _: u32, _: u32) -> Result<Option<Datagrams>, ErrorCode> {
        let mut datagrams = Datagrams::default();
        for datagram in self.0.borrow_mut().to_module.drain(..) {
            datagrams.push(&datagram);
        }
        Ok(Some(datagrams))
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        let own = datagrams.iter().map(<[u8]>::to_vec);
        self.0.borrow_mut().from_module.extend(own);
        Ok(datagrams.lengths.len() as u32)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.0.borrow_mut().ended = true;
    }
}

/// A stream of bytes with the application.
struct Stream(Rc<RefCell<End>>);

impl ByteStream for Stream {
    fn read(&mut self, _: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        Ok(Some(
            self.0
                .borrow_mut()
                .to_module
                .pop_front()
                .unwrap_or_default(),
        ))
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        self.0.borrow_mut().from_module.push(data.to_vec());
        Ok(data.len() as u32)
    }

    fn shutdown(&mut self, _: Direction) -> Result<(), ErrorCode> {
        Ok(())
    }

    fn reset(&mut self, _: ErrorCode) {}

    fn remote_address(&self) -> Option<std::net::SocketAddr> {
        None
    }
}

/// The mailboxes of all generations.
pub type Post = Rc<RefCell<BTreeMap<u32, VecDeque<(u32, Vec<u8>)>>>>;

struct Letterbox {
    own: u32,
    post: Post,
}

impl Mailbox for Letterbox {
    fn receive(&mut self, _: u32, _: u32) -> Mail {
        let mut mail = Mail::default();
        let mut post = self.post.borrow_mut();
        for (from, message) in post.entry(self.own).or_default().drain(..) {
            mail.messages.messages.push(MessageInfo {
                generation: from,
                len: message.len() as u32,
            });
            mail.messages.payload.extend(message);
        }
        mail
    }

    fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode> {
        let mut post = self.post.borrow_mut();
        for (to, message) in messages.iter() {
            let of = post.entry(to).or_default();
            of.push_back((self.own, message.to_vec()));
        }
        Ok(messages.messages.len() as u32)
    }
}

/// The host of one generation.
pub struct Application {
    pub own: u32,
    pub post: Post,
    pub now: u64,
    pub flows: Vec<(FlowInfo, Token, Rc<RefCell<End>>)>,
    pub log: Vec<String>,
}

impl Application {
    pub fn new(own: u32, post: &Post) -> Application {
        Application {
            own,
            post: post.clone(),
            now: 1,
            flows: Vec::new(),
            log: Vec::new(),
        }
    }

    /// The datagrams that the application has of its first flow.
    pub fn came(&self) -> usize {
        let flow = self.flows.first();
        flow.map_or(0, |(_, _, end)| end.borrow().from_module.len())
    }

    /// Has the application answer in its first flow. Returns the token to call the transport with.
    pub fn answer(&self, content: &[u8]) -> Token {
        let (_, token, end) = &self.flows[0];
        end.borrow_mut().to_module.push_back(content.to_vec());
        *token
    }
}

impl Host for Application {
    fn datagram_socket(&mut self, _: &str, _: Token) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let end = Rc::<RefCell<End>>::default();
        self.flows.push((info.clone(), token, end.clone()));
        Ok(Box::new(Stream(end)))
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        let end = Rc::<RefCell<End>>::default();
        self.flows.push((info.clone(), token, end.clone()));
        Ok(Box::new(Flow(end)))
    }

    fn mailbox(&mut self, _: Token) -> Result<Box<dyn Mailbox>, ErrorCode> {
        Ok(Box::new(Letterbox {
            own: self.own,
            post: self.post.clone(),
        }))
    }

    fn log(&mut self, _: Level, _: &str, message: &str) {
        self.log.push(message.to_owned());
    }

    fn log_enabled(&self, _: Level) -> bool {
        true
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }
}

pub fn options(config: &str, generation: u32, predecessor: Option<Vec<u8>>) -> StartOptions {
    StartOptions {
        config: config.into(),
        log_level: Level::Trace,
        generation,
        predecessor,
    }
}

pub fn start(application: &mut Application) -> Tun {
    start_with("", application)
}

pub fn start_with(config: &str, application: &mut Application) -> Tun {
    let options = options(config, application.own, None);
    Tun::start(options, application).expect("a device was granted")
}

/// Calls the transport until it waits.
pub fn run(tun: &mut Tun, ready: &[Token], application: &mut Application) -> Wakeup {
    let mut wakeup = tun.process(ready, application);
    for _ in 0..100 {
        if wakeup != Wakeup::Again {
            break;
        }
        wakeup = tun.process(&[], application);
    }
    wakeup
}

/// Lets this time pass, and calls the transport.
pub fn run_for(time: Duration, tun: &mut Tun, application: &mut Application) {
    application.now += u64::try_from(time.as_nanos()).expect("a short time");
    run(tun, &[], application);
}

/// A counter in the status.
pub fn counter(tun: &Tun, name: &str) -> u64 {
    let counters = tun.status(Instant(0)).counters;
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// A packet of IPv4 with this payload.
pub fn ipv4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).expect("short");
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[0, 1, 0, 0, 64, protocol, 0, 0]);
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        rest => u32::from(rest[0]) << 8,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A datagram from the program, without a checksum.
pub fn udp(port: u16, content: &[u8]) -> Vec<u8> {
    udp_to(53, port, content)
}

/// A datagram to this port of the server, from a port of the program.
pub fn udp_to(to: u16, port: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + content.len()).expect("short");
    let mut datagram = Vec::new();
    datagram.extend_from_slice(&port.to_be_bytes());
    datagram.extend_from_slice(&to.to_be_bytes());
    datagram.extend_from_slice(&length.to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(content);
    ipv4(17, PROGRAM, SERVER, &datagram)
}

/// A segment from port 4000 of the program to port 80 of the server, without a checksum.
pub fn tcp(sequence: u32, acknowledges: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x0f, 0xa0, 0, 80];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&acknowledges.to_be_bytes());
    segment.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(content);
    ipv4(6, PROGRAM, SERVER, &segment)
}
