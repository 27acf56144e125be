//! Packets that are finished outside of the stack: `finish`, and flows whose packets are unfinished
//! in either direction.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::{TcpControl, UdpPacket};
use support::packets::{self, Tcp, read_ip, read_tcp};
use support::{Application, Bench, StreamEnd, origin};
use watm_core::Host;
use watm_core::packets::{Checksum, PacketInfo};
use watm_netstack::{Config, Netstack, PacketSink, PeerId, finish};

const V4: [&str; 2] = ["10.0.0.2:5000", "192.0.2.1:80"];
const V6: [&str; 2] = ["[fd00::2]:5000", "[2001:db8::1]:80"];

/// The bits of the flags.
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 128;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn parse([source, destination]: [&str; 2]) -> (SocketAddr, SocketAddr) {
    (source.parse().unwrap(), destination.parse().unwrap())
}

/// The bytes before the segment or datagram.
fn start(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

/// A packet with a wrong checksum at the offset in its protocol's header, and the entry that says
/// so.
fn unfinished(mut packet: Vec<u8>, offset: u16, size: Option<u16>) -> (Vec<u8>, PacketInfo) {
    let start = start(&packet) as u16;
    packet[usize::from(start + offset)] ^= 0x55;
    let info = PacketInfo {
        checksum: Checksum::Partial { start, offset },
        segment_size: size,
        ..PacketInfo::default()
    };
    (packet, info)
}

fn segment(ends: [&str; 2], payload: &[u8]) -> Vec<u8> {
    let (source, destination) = parse(ends);
    Tcp {
        source,
        destination,
        control: TcpControl::Psh,
        sequence: u32::MAX - 1000,
        acknowledges: Some(7),
        window: 1000,
        scale: None,
        payload,
        sack: None,
    }
    .packet()
}

fn finished(packet: &[u8], info: &PacketInfo) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    finish(packet, info, |packet| packets.push(packet.to_vec()));
    packets
}

#[test]
fn a_long_segment_is_divided_as_the_kernel_does() {
    for ends in [V4, V6] {
        let payload = pattern(2500);
        let mut packet = segment(ends, &payload);
        let flags = start(&packet) + 13;
        packet[flags] |= FIN | CWR;
        let id = 0xffff_u16;
        if ends == V4 {
            packet[4..6].copy_from_slice(&id.to_be_bytes());
        }
        let (packet, info) = unfinished(packet, 16, Some(1000));
        let packets = finished(&packet, &info);
        assert_eq!(packets.len(), 3);
        let mut bytes = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            // Reading checks the lengths and the checksums.
            let read = read_tcp(packet);
            let expected = (u32::MAX - 1000).wrapping_add(bytes.len() as u32);
            assert_eq!(read.sequence, expected);
            assert_eq!(read.acknowledges, Some(7));
            let last = FIN | PSH;
            let expected = [CWR, 0, last][number];
            assert_eq!(packet[flags] & (CWR | last), expected, "packet {number}");
            if ends == V4 {
                let expected = id.wrapping_add(number as u16);
                assert_eq!(packet[4..6], expected.to_be_bytes());
            }
            bytes.extend(read.payload);
        }
        assert_eq!(bytes, payload);
    }
}

#[test]
fn datagrams_in_one_are_divided() {
    for ends in [V4, V6] {
        let (source, destination) = parse(ends);
        let payload = pattern(2500);
        let packet = packets::udp(source, destination, &payload);
        let (packet, info) = unfinished(packet, 6, Some(1000));
        let packets = finished(&packet, &info);
        let contents: Vec<Vec<u8>> = packets
            .iter()
            .map(|packet| {
                let (from, to, protocol, message) = read_ip(packet);
                assert_eq!(protocol, 17);
                let datagram = UdpPacket::new_checked(message).unwrap();
                assert!(datagram.verify_checksum(&from.into(), &to.into()));
                datagram.payload().to_vec()
            })
            .collect();
        let expected: Vec<Vec<u8>> = payload.chunks(1000).map(<[u8]>::to_vec).collect();
        assert_eq!(contents, expected);
    }
}

#[test]
fn a_packet_without_its_checksum_gets_one() {
    for ends in [V4, V6] {
        let whole = segment(ends, b"content");
        let (packet, info) = unfinished(whole.clone(), 16, None);
        assert_ne!(packet, whole);
        assert_eq!(finished(&packet, &info), [whole]);
        let (source, destination) = parse(ends);
        let whole = packets::udp(source, destination, b"content");
        let (packet, info) = unfinished(whole.clone(), 6, None);
        assert_eq!(finished(&packet, &info), [whole]);
    }
}

#[test]
fn a_finished_packet_stays_as_it_is() {
    let packet = b"any bytes".to_vec();
    for checksum in [Checksum::Complete, Checksum::Verified] {
        let info = PacketInfo {
            checksum,
            ..PacketInfo::default()
        };
        assert_eq!(finished(&packet, &info), std::slice::from_ref(&packet));
    }
}

#[test]
fn a_malformed_entry_stands_for_no_packet() {
    for ends in [V4, V6] {
        let (packet, info) = unfinished(segment(ends, &pattern(100)), 16, Some(10));
        let headers = start(&packet) + 20;
        for length in 0..headers {
            assert_eq!(finished(&packet[..length], &info), [[0; 0]; 0], "{length}");
        }
        // A header of TCP that is longer than the packet, or shorter than its own fields.
        for words in [0x00, 0x40, 0xf0] {
            let mut packet = packet[..headers].to_vec();
            packet[headers - 8] = words;
            match ends {
                V4 => packet[2..4].copy_from_slice(&(headers as u16).to_be_bytes()),
                _ => packet[4..6].copy_from_slice(&20_u16.to_be_bytes()),
            }
            assert_eq!(finished(&packet, &info), [[0; 0]; 0], "{words:x}");
        }
    }
    // A size of zero does not divide for ever.
    let (packet, info) = unfinished(segment(V4, &pattern(3)), 16, Some(0));
    assert_eq!(finished(&packet, &info).len(), 3);
}

/// A sink that finishes packets, and keeps them as they came.
#[derive(Default)]
struct Device {
    plain: Vec<Vec<u8>>,
    unfinished: Vec<(Vec<u8>, PacketInfo)>,
    declined: Vec<Vec<u8>>,
}

impl PacketSink for Device {
    fn send(&mut self, _: PeerId, packet: &[u8]) {
        self.plain.push(packet.to_vec());
    }

    fn finishes(&self, _: PeerId) -> bool {
        true
    }

    fn send_unfinished(&mut self, _: PeerId, packet: &[u8], info: &PacketInfo) {
        self.unfinished.push((packet.to_vec(), *info));
    }

    fn decline(&mut self, _: PeerId, packet: &[u8], holder: Option<u32>) -> bool {
        self.declined.extend(holder.map(|_| packet.to_vec()));
        holder.is_some()
    }
}

/// A stack behind such a sink, with a connection from a peer.
struct World {
    stack: Netstack,
    app: Application,
    device: Device,
    ends: [&'static str; 2],
    /// The number of the peer's first byte, and that of the stack's.
    first: u32,
    theirs: u32,
}

impl World {
    fn open(ends: [&'static str; 2]) -> World {
        let app = Application::default();
        let mut world = World {
            stack: Netstack::new(Config::default(), 1, app.now()),
            app,
            device: Device::default(),
            ends,
            first: 1001,
            theirs: 0,
        };
        let (source, destination) = parse(ends);
        let syn = packets::syn(source, destination, 1000);
        world.arrive(&syn, &PacketInfo::default());
        let answer = read_tcp(&world.device.plain.remove(0));
        world.theirs = answer.sequence.wrapping_add(1);
        let third = world.segment(&[]);
        world.arrive(&third, &PacketInfo::default());
        world
    }

    /// The peer's next segment.
    fn segment(&mut self, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = parse(self.ends);
        let sequence = self.first;
        self.first += payload.len() as u32;
        Tcp {
            source,
            destination,
            control: TcpControl::None,
            sequence,
            acknowledges: Some(self.theirs),
            window: u16::MAX,
            scale: None,
            payload,
            sack: None,
        }
        .packet()
    }

    fn arrive(&mut self, packet: &[u8], info: &PacketInfo) {
        let (app, device) = (&mut self.app, &mut self.device);
        self.stack
            .handle_unfinished(&origin(1), packet, info, app, device);
        self.rest();
    }

    fn rest(&mut self) {
        let (app, device) = (&mut self.app, &mut self.device);
        for _ in 0..100 {
            for token in app.take_ready() {
                self.stack.handle_ready(token, app, device);
            }
            self.stack.flush(app, device);
        }
    }

    fn stream(&self) -> StreamEnd {
        self.app.streams()[0].clone()
    }
}

#[test]
fn a_range_leaves_in_one_packet() {
    for ends in [V4, V6] {
        let mut world = World::open(ends);
        let bytes = pattern(6000);
        world.stream().write(&bytes);
        world.rest();
        assert_eq!(world.device.plain, [[0; 0]; 0]);
        let [(packet, info)] = &world.device.unfinished[..] else {
            panic!("{} packets", world.device.unfinished.len());
        };
        assert!(packet.len() > 6000);
        let size = info.segment_size.expect("it stands for several");
        let divided = finished(packet, info);
        assert_eq!(divided.len(), 6000_usize.div_ceil(size.into()));
        let payloads: Vec<u8> = divided
            .iter()
            .flat_map(|packet| read_tcp(packet).payload)
            .collect();
        assert_eq!(payloads, bytes);
    }
}

#[test]
fn a_single_segment_leaves_without_its_checksum() {
    let mut world = World::open(V4);
    world.stream().write(b"answer");
    world.rest();
    let (packet, info) = &world.device.unfinished[0];
    assert_eq!(info.segment_size, None);
    assert_eq!(read_tcp(&finished(packet, info)[0]).payload, b"answer");
    // The field has the sum of the pseudo-header, from which a device computes the rest.
    let whole = &finished(packet, info)[0];
    let sum = |bytes: &[u8]| smoltcp::wire::checksum::data(bytes);
    let mut segment = packet[20..].to_vec();
    let field = sum(&segment);
    segment[16..18].copy_from_slice(&(!field).to_be_bytes());
    assert_eq!(segment, whole[20..]);
}

#[test]
fn a_long_segment_arrives_and_is_acknowledged_at_once() {
    for ends in [V4, V6] {
        let mut world = World::open(ends);
        // Too few for an announcement of the window.
        let bytes = pattern(2500);
        // The second one continues the run of the first.
        for _ in 0..2 {
            let packet = world.segment(&bytes);
            let (packet, info) = unfinished(packet, 16, Some(1000));
            world.arrive(&packet, &info);
            assert!(world.stream().read() == bytes);
            let answer = read_tcp(world.device.plain.last().expect("an acknowledgement"));
            assert_eq!(answer.acknowledges, Some(world.first));
        }
    }
}

#[test]
fn a_wrong_checksum_is_noticed_unless_the_device_vouches() {
    let mut world = World::open(V4);
    let mut packet = world.segment(b"content");
    *packet.last_mut().unwrap() ^= 1;
    world.arrive(&packet, &PacketInfo::default());
    assert_eq!(world.stream().read(), b"");
    let info = PacketInfo {
        checksum: Checksum::Verified,
        ..PacketInfo::default()
    };
    world.arrive(&packet, &info);
    assert_eq!(world.stream().read(), b"contenu");
}

#[test]
fn datagrams_in_one_become_datagrams_of_a_flow() {
    let mut bench = Bench::new(Config::default());
    let (source, destination) = parse(V4);
    let packet = packets::udp(source, destination, &pattern(2500));
    let (packet, info) = unfinished(packet, 6, Some(1000));
    let (app, sent) = (&mut bench.app, &mut bench.sent);
    bench
        .stack
        .handle_unfinished(&origin(1), &packet, &info, app, sent);
    bench.wait(Duration::from_millis(1));
    let flow = bench.app.flows()[0].clone();
    let received = flow.read();
    let expected: Vec<Vec<u8>> = pattern(2500).chunks(1000).map(<[u8]>::to_vec).collect();
    assert_eq!(received, expected);
}

#[test]
fn another_stack_gets_finished_packets() {
    let mut world = World::open(V4);
    let (source, destination) = parse(["10.0.0.2:6000", V4[1]]);
    let protocol = watm_netstack::Protocol::Tcp;
    let flow = watm_netstack::FlowKey {
        protocol,
        peer: 1,
        source,
        destination,
    };
    world.stack.put_elsewhere(flow, 3);
    let packet = segment(["10.0.0.2:6000", V4[1]], &pattern(2500));
    let (packet, info) = unfinished(packet, 16, Some(1000));
    world.arrive(&packet, &info);
    let declined = &world.device.declined;
    assert_eq!(declined.len(), 3);
    let payloads: Vec<u8> = declined
        .iter()
        .flat_map(|packet| read_tcp(packet).payload)
        .collect();
    assert_eq!(payloads, pattern(2500));
}
