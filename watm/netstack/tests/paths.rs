//! Paths to peers with a smaller MTU than others.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::iface::SocketHandle;
use support::{Bench, Conditions, MINUTES, Random, Simulation, packets};
use watm_netstack::Config;

const V4: &str = "10.1.2.3:80";
const V6: &str = "[fd00:1::2]:443";

/// The longest of these packets.
fn longest(packets: &[Vec<u8>]) -> usize {
    packets.iter().map(Vec::len).max().expect("some")
}

#[test]
fn connections_say_and_send_what_the_way_takes() {
    for (to, headers) in [(V4, 40), (V6, 60)] {
        for mtu in [576, 1000, 1240, 1300, 1420, 9000] {
            let mut bench = Bench::new(Config::default());
            bench.stack.set_path_mtu(1, Some(mtu));
            let to: SocketAddr = to.parse().unwrap();
            bench.dial(1, to).unwrap();
            bench.dial(2, to).unwrap();
            let said = bench.settle();
            let said = said.iter().map(|syn| packets::read_tcp(syn).most);
            let expected = [mtu.min(1420) - headers, 1420 - headers];
            let expected = expected.map(|most| u16::try_from(most).ok());
            assert_eq!(said.collect::<Vec<_>>(), expected, "{to} {mtu}");
        }
    }
}

#[test]
fn a_way_that_gets_narrower_gets_smaller_segments_at_once() {
    let mut sim = Simulation::new(Conditions::clean(Duration::from_millis(40)), 5);
    let (handle, stream) = sim.connect(V4.parse().unwrap());
    let data = Random(3).bytes(300_000);
    stream.write(&data);
    sim.run_for(Duration::from_millis(50));
    let on_the_way = sim.bench.settle();
    assert_eq!(
        on_the_way,
        Vec::<Vec<u8>>::new(),
        "all that is to be sent is"
    );
    // The packets in flight are lost.
    sim.down.clear();
    sim.bench.stack.set_path_mtu(1, Some(1240));
    let again = sim.bench.settle();
    assert_eq!(longest(&again), 1240);
    let now = sim.now();
    for packet in again {
        sim.down.send(now, packet);
    }
    assert!(read(&mut sim, handle, data.len()) == data);
}

/// Reads this many bytes at the client.
fn read(sim: &mut Simulation, handle: SocketHandle, length: usize) -> Vec<u8> {
    let mut got = Vec::new();
    sim.run_until(MINUTES, |sim| {
        let socket = sim.client.socket(handle);
        let mut buffer = vec![0; 65536];
        while socket.can_recv() {
            let count = socket.recv_slice(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..count]);
        }
        got.len() == length
    });
    got
}

#[test]
fn a_way_that_gets_wider_gets_larger_segments() {
    let mut sim = Simulation::new(Conditions::clean(Duration::ZERO), 6);
    sim.bench.stack.set_path_mtu(1, Some(1000));
    let (_, stream) = sim.connect(V4.parse().unwrap());
    sim.bench.stack.set_path_mtu(1, Some(1200));
    stream.write(&[1; 5000]);
    assert_eq!(longest(&sim.bench.settle()), 1200);
}

#[test]
fn a_way_that_says_nothing_of_long_packets_gets_short_ones_after_a_while() {
    for (to, longest, limit) in [(V4, 1300, 4), (V6, 1300, 4), (V4, 1000, 20)] {
        let mut sim = Simulation::new(Conditions::clean(Duration::from_millis(40)), 9);
        let (handle, stream) = sim.connect(to.parse().unwrap());
        sim.down.longest = longest;
        let begun = sim.now();
        let data = Random(4).bytes(300_000);
        stream.write(&data);
        assert!(read(&mut sim, handle, data.len()) == data);
        let took = sim.now() - begun;
        assert!(took < Duration::from_secs(limit), "{took:?}");
    }
}

#[test]
fn another_configuration_counts_for_open_connections() {
    let mut sim = Simulation::new(Conditions::clean(Duration::ZERO), 7);
    let (_, stream) = sim.connect(V4.parse().unwrap());
    sim.bench.stack.reconfigure(Config {
        mtu: 1280,
        ..Config::default()
    });
    stream.write(&[1; 5000]);
    assert_eq!(longest(&sim.bench.settle()), 1280);
}

#[test]
fn who_sends_datagrams_is_told_and_longer_ones_go_in_fragments() {
    for (to, headers) in [(V4, 28), (V6, 48)] {
        let mut bench = Bench::new(Config::default());
        let to: SocketAddr = to.parse().unwrap();
        let flow = bench.dial_datagrams(1, to).unwrap();
        let other = bench.dial_datagrams(2, to).unwrap();
        assert_eq!(flow.longest(), Some(1420 - headers));
        bench.stack.set_path_mtu(1, Some(1240));
        assert_eq!(flow.longest(), Some(1240 - headers));
        assert_eq!(other.longest(), Some(1420 - headers));
        flow.write(&vec![1; (1240 - headers) as usize]);
        let sent = bench.settle();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            packets::read_udp(&sent[0]).2.len(),
            (1240 - headers) as usize
        );
        flow.write(&vec![1; (1241 - headers) as usize]);
        let sent = bench.settle();
        assert_eq!(sent.len(), 2);
        assert!(longest(&sent) <= 1240);
        // A peer that comes again has no known MTU.
        bench.stack.set_path_mtu(1, None);
        assert_eq!(flow.longest(), Some(1420 - headers));
    }
}

#[test]
fn nobody_is_sent_tiny_packets() {
    let mut sim = Simulation::new(Conditions::clean(Duration::ZERO), 8);
    let (_, stream) = sim.connect(V4.parse().unwrap());
    sim.bench.stack.set_path_mtu(1, Some(0));
    stream.write(&[1; 5000]);
    assert_eq!(longest(&sim.bench.settle()), 576);
}
