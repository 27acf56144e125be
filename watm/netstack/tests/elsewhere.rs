//! Flows of other stacks, and packets without a flow here.

mod support;

use std::net::SocketAddr;

use support::packets::{self, Tcp};
use support::{Application, Bench, SOURCE_V4, origin};
use watm_core::Host;
use watm_netstack::{Config, FlowKey, Netstack, PacketSink, PeerId, Protocol};

/// A sink whose other stacks take declined packets, if `takes`.
#[derive(Default)]
struct Others {
    takes: bool,
    sent: Vec<Vec<u8>>,
    declined: Vec<(PeerId, Vec<u8>, Option<u32>)>,
}

impl PacketSink for Others {
    fn send(&mut self, _: PeerId, packet: &[u8]) {
        self.sent.push(packet.to_vec());
    }

    fn decline(&mut self, peer: PeerId, packet: &[u8], holder: Option<u32>) -> bool {
        self.declined.push((peer, packet.to_vec(), holder));
        self.takes
    }
}

struct World {
    stack: Netstack,
    app: Application,
    others: Others,
}

impl World {
    fn new() -> Self {
        let app = Application::default();
        World {
            stack: Netstack::new(Config::default(), 1, app.now()),
            app,
            others: Others::default(),
        }
    }

    fn packet(&mut self, packet: &[u8]) {
        let (app, others) = (&mut self.app, &mut self.others);
        self.stack.handle_packet(&origin(1), packet, app, others);
        self.stack.flush(app, others);
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    let source = "10.0.0.2:5000".parse().unwrap();
    (source, "192.0.2.1:80".parse().unwrap())
}

fn flow(protocol: Protocol) -> FlowKey {
    let (source, destination) = ends();
    FlowKey {
        protocol,
        peer: 1,
        source,
        destination,
    }
}

fn segment() -> Vec<u8> {
    let (source, destination) = ends();
    Tcp {
        source,
        destination,
        control: smoltcp::wire::TcpControl::None,
        sequence: 5,
        acknowledges: Some(6),
        window: 1000,
        scale: None,
        payload: b"data",
        sack: None,
    }
    .packet()
}

#[test]
fn a_packet_of_somebody_elses_flow_is_handed_on_untouched() {
    let mut world = World::new();
    world.others.takes = true;
    let (source, destination) = ends();
    for (protocol, packet) in [
        (Protocol::Tcp, segment()),
        (Protocol::Tcp, packets::syn(source, destination, 1)),
        (Protocol::Udp, packets::udp(source, destination, b"data")),
    ] {
        world.stack.put_elsewhere(flow(protocol), 7);
        world.packet(&packet);
        assert_eq!(world.others.declined.pop(), Some((1, packet, Some(7))));
    }
    assert!(world.others.sent.is_empty() && world.stack.is_idle());
    let elsewhere: Vec<_> = world.stack.elsewhere().collect();
    assert_eq!(
        elsewhere,
        [(flow(Protocol::Tcp), 7), (flow(Protocol::Udp), 7)]
    );
    world.stack.forget_elsewhere(7);
    assert_eq!(world.stack.elsewhere().count(), 0);
}

#[test]
fn what_nobody_takes_is_ours_and_is_not_asked_for_again() {
    let mut world = World::new();
    let (source, destination) = ends();
    let datagram = packets::udp(source, destination, b"data");
    world.stack.put_elsewhere(flow(Protocol::Udp), 7);
    world.packet(&datagram);
    world.packet(&datagram);
    assert_eq!(world.others.declined.len(), 1);
    assert_eq!(world.app.flows()[0].read().len(), 2);
    assert_eq!(world.stack.elsewhere().count(), 0);
    assert_eq!(
        world.stack.known().collect::<Vec<_>>(),
        [flow(Protocol::Udp)]
    );

    world.packet(&segment());
    assert!(packets::read_tcp(&world.others.sent[0]).reset);
}

#[test]
fn a_peer_that_goes_takes_its_flows_elsewhere_along() {
    let mut world = World::new();
    world.stack.put_elsewhere(flow(Protocol::Tcp), 7);
    world
        .stack
        .remove_peer(1, &mut world.app, &mut world.others);
    assert_eq!(world.stack.elsewhere().count(), 0);
}

#[test]
fn a_stack_that_accepts_no_more_offers_no_flow_again() {
    let mut world = World::new();
    let (source, destination) = ends();
    let datagram = packets::udp(source, destination, b"data");
    world.packet(&datagram);
    world.others.takes = true;
    world.stack.set_accepting(false);
    world.app.flows()[0].close(false);
    world.packet(&datagram);
    assert_eq!(world.app.flows().len(), 1);
    assert!(world.stack.is_idle());
    world.packet(&datagram);
    assert_eq!(world.others.declined.last(), Some(&(1, datagram, None)));
}

#[test]
fn a_connection_from_here_takes_no_port_of_another_stacks() {
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let port = |bench: &mut Bench| {
        let _end = bench.dial(1, to).unwrap();
        let syn = bench.settle();
        u16::from_be_bytes([syn[0][20], syn[0][21]])
    };
    let mut bench = Bench::new(Config::default());
    let first = port(&mut bench);
    // The same choice again, with the port taken.
    let mut bench = Bench::new(Config::default());
    let taken = FlowKey {
        protocol: Protocol::Tcp,
        peer: 1,
        source: to,
        destination: SocketAddr::new(SOURCE_V4, first),
    };
    bench.stack.put_elsewhere(taken, 7);
    assert_eq!(port(&mut bench), first.wrapping_add(1).max(49152));
}
