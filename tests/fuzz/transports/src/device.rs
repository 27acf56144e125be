//! Raw packets of IP at the device of the transport `tun`, as any program behind the device can send them.
//!
//! A packet is the bytes of the program as they come, a good packet that is damaged, or one whose
//! lengths lie. Some come with an entry that says that they are unfinished, or stand for several.
//! Pings in between must be answered, whatever came before them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::packets::{Checksum, Offloads, PacketBatch, PacketDevice, PacketInfo, set_provider};
use watm_core::{ErrorCode, Host, Instant, Level, StartOptions, Token, Transport, Wakeup};
use watm_netstack::finish;
use watm_tun::Tun;

use crate::packet;
use crate::program::Program;
use crate::support::SimHost;
use crate::support::inner::packets;

const MTU: usize = 1500;
const FLOWS: usize = 24;

/// The device's token, which the transport chooses.
const DEVICE: Token = 0;

/// The packets of the device of this thread.
#[derive(Default)]
struct Queue {
    to_module: VecDeque<(Vec<u8>, PacketInfo)>,
    /// Finished.
    from_module: Vec<Vec<u8>>,
    gone: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

struct Device;

impl PacketDevice for Device {
    fn receive(&mut self, max_packets: u32, max_bytes: u32) -> Result<PacketBatch, ErrorCode> {
        QUEUE.with_borrow_mut(|queue| {
            let mut batch = PacketBatch::default();
            while batch.packets.len() < max_packets as usize
                && batch.payload.len() < max_bytes as usize
                && let Some((packet, info)) = queue.to_module.pop_front()
            {
                batch.push_unfinished(&packet, info);
            }
            match queue.gone && batch.is_empty() {
                true => Err(ErrorCode::ConnectionAborted),
                false => Ok(batch),
            }
        })
    }

    fn send(&mut self, batch: &PacketBatch) -> Result<u32, ErrorCode> {
        QUEUE.with_borrow_mut(|queue| {
            for (info, packet) in batch.iter() {
                let before = queue.from_module.len();
                finish(packet, info, |packet| {
                    queue.from_module.push(packet.to_vec())
                });
                assert!(queue.from_module.len() > before, "{info:?} is malformed");
            }
        });
        Ok(batch.packets.len() as u32)
    }

    fn set_offloads(&mut self, wanted: Offloads) -> Offloads {
        wanted
    }

    fn mtu(&self) -> u32 {
        MTU as u32
    }
}

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(12) {
        match step {
            0..=2 => world.arrive(program.bytes().to_vec()),
            3 | 4 => {
                let mut packet = good(&mut program);
                program.damage(&mut packet);
                world.arrive(packet);
            }
            5 => world.arrive(lying(&mut program)),
            6 => {
                // Several packets before the module is called.
                for _ in 0..program.below(8) {
                    let packet = good(&mut program);
                    world.queue(packet);
                }
                world.arrive(program.bytes().to_vec());
            }
            7 => {
                let time = program.choose(&[1, 40, 250, 1_000, 11_000, 61_000]);
                world.pass(Duration::from_millis(time));
            }
            8 => world.application(&mut program),
            9 | 10 => {
                let mut packet = good(&mut program);
                let info = unfinished(&mut program);
                if program.one_in(4) {
                    program.damage(&mut packet);
                }
                world.arrive_unfinished(packet, info);
            }
            _ => world.ping(program.one_in(2)),
        }
        world.check();
    }
    world.end();
}

struct World {
    tun: Tun,
    host: SimHost,
    wakeup: Wakeup,
    /// The number of pings so far.
    pings: u16,
}

impl World {
    fn new() -> World {
        QUEUE.set(Queue::default());
        set_provider(Some(|_, _| Ok(Box::new(Device))));
        let mut host = SimHost::new(address("192.0.2.1"), Instant(0));
        let options = StartOptions {
            config: format!("{{\"max_flows\": {FLOWS}}}").into_bytes(),
            log_level: Level::Trace,
            generation: 0,
            predecessor: None,
        };
        let tun = Tun::start(options, &mut host).expect("a device is granted");
        World {
            tun,
            host,
            wakeup: Wakeup::Again,
            pings: 0,
        }
    }

    fn queue(&self, packet: Vec<u8>) {
        self.queue_unfinished(packet, PacketInfo::default());
    }

    fn queue_unfinished(&self, packet: Vec<u8>, info: PacketInfo) {
        QUEUE.with_borrow_mut(|queue| queue.to_module.push_back((packet, info)));
    }

    /// Lets a packet arrive behind those that are queued.
    fn arrive(&mut self, packet: Vec<u8>) {
        self.arrive_unfinished(packet, PacketInfo::default());
    }

    fn arrive_unfinished(&mut self, packet: Vec<u8>, info: PacketInfo) {
        self.queue_unfinished(packet, info);
        self.rest(&[DEVICE]);
    }

    /// Calls the module until it waits.
    fn rest(&mut self, ready: &[Token]) {
        let mut ready = ready.to_vec();
        for _ in 0..1000 {
            ready.extend(self.host.take_ready());
            self.wakeup = self.tun.process(&ready, &mut self.host);
            ready.clear();
            if self.wakeup != Wakeup::Again && self.host.app.is_quiet() {
                return;
            }
        }
        panic!("the module does not come to rest");
    }

    fn pass(&mut self, time: Duration) {
        let end = self.host.now() + time;
        for _ in 0..100_000 {
            match self.wakeup {
                Wakeup::At(at) if at <= end => self.host.set_now(at.max(self.host.now())),
                _ => return self.host.set_now(end),
            }
            self.rest(&[]);
        }
        panic!("the module spins");
    }

    /// Makes the application use one of its flows.
    fn application(&mut self, program: &mut Program<'_>) {
        let streams = self.host.app.streams();
        let flows = self.host.app.flows();
        match program.below(6) {
            0 if !streams.is_empty() => streams[program.below(streams.len())].close(),
            1 if !streams.is_empty() => streams[program.below(streams.len())].write(&[1; 3000]),
            2 if !streams.is_empty() => streams[program.below(streams.len())].abort(),
            3 if !flows.is_empty() => flows[program.below(flows.len())].close(true),
            4 if !flows.is_empty() => {
                let length = program.choose(&[0, 10, 1472, 1473, 65_507]);
                flows[program.below(flows.len())].write(&vec![2; length]);
            }
            _ => {
                let refuses = program.one_in(2);
                self.host.app.refuse = refuses.then_some(ErrorCode::LimitReached);
            }
        }
        self.rest(&[]);
    }

    /// Pings an address through the device, which must answer.
    fn ping(&mut self, v6: bool) {
        self.check();
        self.pings += 1;
        let (source, destination) = match v6 {
            false => (address("10.9.0.2").ip(), address("203.0.113.9").ip()),
            true => (address("fd00::9").ip(), address("2001:db8::9").ip()),
        };
        let (request, reply) = if v6 { (128, 129) } else { (8, 0) };
        let mut message = vec![request, 0, 0, 0, 9, 9];
        message.extend(self.pings.to_be_bytes());
        message.extend(b"still there");
        self.arrive(packets::icmp(source, destination, &message));
        let answers = sent();
        let found = answers.iter().any(|packet| {
            packet::check(packet, MTU);
            let (from, to, _, payload) = packets::read_ip(packet);
            (from, to) == (destination, source)
                && payload[0] == reply
                && payload[4..] == message[4..]
        });
        assert!(found, "a ping is not answered");
    }

    /// Checks what holds after every packet.
    fn check(&self) {
        for packet in sent() {
            packet::check(&packet, MTU);
        }
        let app = &self.host.app;
        let live = app.streams().iter().filter(|stream| !stream.gone()).count()
            + app.flows().iter().filter(|flow| !flow.gone()).count();
        assert!(live <= FLOWS, "{live} flows");
        let status = self.tun.status(self.host.now());
        assert!(status.flows as usize <= FLOWS, "{} flows", status.flows);
        let loud = self
            .host
            .logs
            .iter()
            .find(|(level, _)| *level > Level::Debug);
        assert!(loud.is_none(), "a packet can write {loud:?}");
    }

    /// Deletes the device, and checks that nothing is left.
    fn end(mut self) {
        self.ping(false);
        self.ping(true);
        self.check();
        QUEUE.with_borrow_mut(|queue| queue.gone = true);
        for _ in 0..3 {
            self.rest(&[DEVICE]);
        }
        let app = &self.host.app;
        assert!(app.streams().iter().all(|stream| stream.gone()));
        assert!(app.flows().iter().all(|flow| flow.gone()));
        assert_eq!(self.tun.status(self.host.now()).flows, 0);
        let loud = self
            .host
            .logs
            .iter()
            .filter(|(level, _)| *level > Level::Debug);
        assert_eq!(loud.count(), 1, "one line about the device");
    }
}

fn sent() -> Vec<Vec<u8>> {
    QUEUE.with_borrow_mut(|queue| std::mem::take(&mut queue.from_module))
}

fn address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), 0)
}

/// A packet of any kind, of one of the program's addresses.
fn good(program: &mut Program<'_>) -> Vec<u8> {
    let (source, destination) = match program.one_in(2) {
        true => ("[fd00::2]:4000", "[2001:db8::1]:443"),
        false => ("10.0.0.2:4000", "192.0.2.1:443"),
    };
    let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (mut source, mut destination) = (parse(source), parse(destination));
    source.set_port(4000 + program.below(64) as u16);
    destination.set_port(program.choose(&[443, 53, 0]));
    packet::any(program, source, destination)
}

/// An entry that leaves work to the module, and need not fit its packet.
fn unfinished(program: &mut Program<'_>) -> PacketInfo {
    let partial = Checksum::Partial {
        start: program.choose(&[20, 40, 0, u16::MAX]),
        offset: program.choose(&[16, 6, 3]),
    };
    PacketInfo {
        checksum: program.choose(&[partial, Checksum::Verified, Checksum::Complete]),
        segment_size: program.choose(&[None, Some(0), Some(1), Some(7), Some(536), Some(1460)]),
        ..PacketInfo::default()
    }
}

/// A packet with a length of its own choice, and with any number of bytes.
fn lying(program: &mut Program<'_>) -> Vec<u8> {
    let mut packet = good(program);
    let length = program.choose(&[0, 1, 19, 20, 39, 40, 1500, 1501, 65_535]);
    packet.resize(program.choose(&[packet.len(), 1, 20, 1501, 65_535]), 0xa5);
    // The field of the version that the first byte claims.
    let at = if packet.first().is_some_and(|first| first >> 4 == 6) {
        4
    } else {
        2
    };
    if let Some(field) = packet.get_mut(at..at + 2) {
        field.copy_from_slice(&(length as u16).to_be_bytes());
    }
    packet
}
