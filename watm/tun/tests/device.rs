//! The transport with a device and an application of the test: flows, the end of the device, and
//! swaps.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use watm_core::packets::{PacketBatch, PacketDevice, set_provider};
use watm_core::{
    ByteStream, ConfigError, DatagramFlow, DatagramSocket, Datagrams, Destination, ErrorCode,
    FlowInfo, Host, Instant, Level, Listener, Mail, Mailbox, MessageInfo, Messages, StartOptions,
    Token, Transport, Wakeup,
};
use watm_tun::Tun;

const PROGRAM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// The device of this thread.
#[derive(Default)]
struct Shared {
    to_module: VecDeque<Vec<u8>>,
    from_module: Vec<Vec<u8>>,
    gone: bool,
    granted: bool,
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
                && let Some(packet) = device.to_module.pop_front()
            {
                batch.push(&packet);
            }
            match device.gone && batch.is_empty() {
                true => Err(ErrorCode::ConnectionAborted),
                false => Ok(batch),
            }
        })
    }

    fn send(&mut self, batch: &PacketBatch) -> Result<u32, ErrorCode> {
        DEVICE.with_borrow_mut(|device| {
            let packets = batch.iter().map(|(_, packet)| packet.to_vec());
            device.from_module.extend(packets);
        });
        Ok(batch.packets.len() as u32)
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

fn grant() {
    set_provider(Some(open));
    DEVICE.with_borrow_mut(|device| {
        *device = Shared {
            granted: true,
            ..Shared::default()
        };
    });
}

fn arrive(packet: Vec<u8>) {
    DEVICE.with_borrow_mut(|device| device.to_module.push_back(packet));
}

fn sent() -> Vec<Vec<u8>> {
    DEVICE.with_borrow_mut(|device| std::mem::take(&mut device.from_module))
}

/// The application's end of a datagram flow.
#[derive(Default)]
struct End {
    to_module: VecDeque<Vec<u8>>,
    from_module: Vec<Vec<u8>>,
    ended: bool,
}

struct Flow(Rc<RefCell<End>>);

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

/// The mailboxes of all generations.
type Post = Rc<RefCell<BTreeMap<u32, VecDeque<(u32, Vec<u8>)>>>>;

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
struct Application {
    own: u32,
    post: Post,
    now: u64,
    flows: Vec<(FlowInfo, Token, Rc<RefCell<End>>)>,
    log: Vec<String>,
}

impl Application {
    fn new(own: u32, post: &Post) -> Application {
        Application {
            own,
            post: post.clone(),
            now: 1,
            flows: Vec::new(),
            log: Vec::new(),
        }
    }
}

impl Host for Application {
    fn datagram_socket(&mut self, _: &str, _: Token) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn listener(&mut self, _: &str, _: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(&mut self, _: &FlowInfo, _: Token) -> Result<Box<dyn ByteStream>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
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

fn options(config: &str, generation: u32, predecessor: Option<Vec<u8>>) -> StartOptions {
    StartOptions {
        config: config.into(),
        log_level: Level::Trace,
        generation,
        predecessor,
    }
}

fn start(application: &mut Application) -> Tun {
    let options = options("", application.own, None);
    Tun::start(options, application).expect("a device was granted")
}

/// Calls the transport until it waits.
fn run(tun: &mut Tun, ready: &[Token], application: &mut Application) -> Wakeup {
    let mut wakeup = tun.process(ready, application);
    for _ in 0..100 {
        if wakeup != Wakeup::Again {
            break;
        }
        wakeup = tun.process(&[], application);
    }
    wakeup
}

/// A packet of IPv4 with this payload.
fn ipv4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
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

fn checksum(bytes: &[u8]) -> u16 {
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
fn udp(port: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + content.len()).expect("short");
    let mut datagram = Vec::new();
    datagram.extend_from_slice(&port.to_be_bytes());
    datagram.extend_from_slice(&53u16.to_be_bytes());
    datagram.extend_from_slice(&length.to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(content);
    ipv4(17, PROGRAM, SERVER, &datagram)
}

#[test]
fn a_module_without_a_device_says_so() {
    let mut application = Application::new(0, &Post::default());
    set_provider(Some(open));
    DEVICE.take();
    let refused = Tun::start(options("", 0, None), &mut application);
    let Err(ConfigError::Other(reason)) = refused else {
        panic!("it started, or refused its configuration");
    };
    assert_eq!(
        reason,
        "no device for packets with label tun: access denied"
    );
}

#[test]
fn datagrams_become_flows_and_answers_become_packets() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    arrive(udp(4000, b"question"));
    run(&mut tun, &[], &mut application);
    let (info, token, end) = &application.flows[0];
    assert_eq!(info.source, SocketAddr::new(PROGRAM.into(), 4000));
    let server = SocketAddr::new(SERVER.into(), 53);
    assert_eq!(info.destination, Destination::Address(server));
    assert_eq!(info.peer.as_deref(), Some("tun"));
    assert_eq!(end.borrow().from_module, [b"question"]);
    end.borrow_mut().to_module.push_back(b"answer".to_vec());
    let token = *token;
    run(&mut tun, &[token], &mut application);
    let packets = sent();
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0][12..16], SERVER.octets());
    assert_eq!(packets[0][16..20], PROGRAM.octets());
    assert_eq!(packets[0][28..], *b"answer");
    let status = tun.status(Instant(2));
    let counter = |name| status.counters.iter().find(|(known, _)| *known == name);
    assert_eq!(
        counter("tun.packets_received"),
        Some(&("tun.packets_received", 1))
    );
    assert_eq!(counter("tun.packets_sent"), Some(&("tun.packets_sent", 1)));
}

#[test]
fn pings_are_answered_for_any_address() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1, b'x'];
    let sum = checksum(&echo);
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    arrive(ipv4(1, PROGRAM, SERVER, &echo));
    run(&mut tun, &[], &mut application);
    let packets = sent();
    assert_eq!(packets.len(), 1);
    assert_eq!((packets[0][9], packets[0][20]), (1, 0));
}

#[test]
fn a_device_that_is_gone_ends_its_flows_and_is_logged_once() {
    grant();
    let mut application = Application::new(0, &Post::default());
    let mut tun = start(&mut application);
    arrive(udp(4000, b"question"));
    run(&mut tun, &[], &mut application);
    DEVICE.with_borrow_mut(|device| device.gone = true);
    for _ in 0..3 {
        // Token 0 is the device's.
        run(&mut tun, &[0], &mut application);
    }
    assert!(application.flows[0].2.borrow().ended);
    let expected = "the device tun is gone (connection aborted), and its flows are reset; make the \
                    device again and restart this server, which carries no packets until then";
    assert_eq!(application.log, [expected]);
}

#[test]
fn flows_stay_with_their_generation_in_a_swap() {
    grant();
    let post = Post::default();
    let mut old_host = Application::new(0, &post);
    let mut old = start(&mut old_host);
    arrive(udp(4000, b"1"));
    run(&mut old, &[], &mut old_host);
    assert_eq!(old_host.flows.len(), 1);

    let snapshot = old.snapshot(Instant(1));
    let mut new_host = Application::new(1, &post);
    let mut new = Tun::start(options("", 1, Some(snapshot)), &mut new_host).expect("it starts");
    new.serving(1, &mut new_host);
    // Nothing is read before the list of the old one, which would have to answer otherwise.
    arrive(udp(4000, b"2"));
    new.process(&[], &mut new_host);
    assert!(new_host.flows.is_empty());
    old.serving(1, &mut old_host);
    // Token 1 is the mailbox's.
    run(&mut new, &[1], &mut new_host);
    run(&mut old, &[1], &mut old_host);
    assert!(new_host.flows.is_empty());
    assert_eq!(old_host.flows[0].2.borrow().from_module, [b"1", b"2"]);

    // A new flow is the new one's, and the old one still answers its own.
    arrive(udp(4001, b"3"));
    run(&mut new, &[0], &mut new_host);
    assert_eq!(new_host.flows.len(), 1);
    let (_, token, end) = &old_host.flows[0];
    end.borrow_mut().to_module.push_back(b"answer".to_vec());
    let token = *token;
    run(&mut old, &[token], &mut old_host);
    assert_eq!(sent().len(), 1);

    // Once its flows are idle, the old one has nothing left to do.
    old_host.now += 61_000_000_000;
    assert_eq!(run(&mut old, &[], &mut old_host), Wakeup::Finished);
    // The flow between the same ends is then the new one's.
    arrive(udp(4000, b"4"));
    run(&mut new, &[0], &mut new_host);
    run(&mut old, &[1], &mut old_host);
    run(&mut new, &[1], &mut new_host);
    assert_eq!(new_host.flows.len(), 2);
}

#[test]
fn a_predecessor_that_lists_nothing_is_waited_for_no_longer_than_a_second() {
    grant();
    let mut host = Application::new(1, &Post::default());
    let predecessor = Some(b"watm-tun 1".to_vec());
    let mut tun = Tun::start(options("", 1, predecessor), &mut host).expect("it starts");
    tun.serving(1, &mut host);
    arrive(udp(4000, b"1"));
    let wakeup = run(&mut tun, &[], &mut host);
    assert_eq!(wakeup, Wakeup::At(Instant(1_000_000_001)));
    host.now = 1_000_000_001;
    run(&mut tun, &[], &mut host);
    assert_eq!(host.flows.len(), 1);
}

#[test]
fn dials_need_an_address_of_the_family() {
    grant();
    let post = Post::default();
    let mut host = Application::new(0, &post);
    let config = r#"{"addresses": ["198.18.0.1"]}"#;
    let mut tun = Tun::start(options(config, 0, None), &mut host).expect("it starts");
    let mut dial = |address: IpAddr| {
        let end = Box::new(Flow(Rc::default()));
        let to = Destination::Address(SocketAddr::new(address, 80));
        tun.dial_datagrams(Some(&to), end, &mut host)
    };
    assert!(dial(IpAddr::V4(PROGRAM)).is_ok());
    let refused = dial("fd00::2".parse().expect("an address"));
    let expected = "addresses has none of the family of [fd00::2]:80; add one as the source of \
                    connections";
    assert_eq!(refused, Err(ErrorCode::Other(expected.to_owned())));
}

#[test]
fn errors_of_a_configuration_name_the_field() {
    grant();
    for (config, path, reason) in [
        (r#"{"mtu": 100}"#, "mtu", "1280"),
        (r#"{"mtu": "big"}"#, "mtu", "1280"),
        (
            r#"{"addresses": ["here"]}"#,
            "addresses",
            "list of addresses",
        ),
        (
            r#"{"addresses": "198.18.0.1"}"#,
            "addresses",
            "list of addresses",
        ),
        (r#"{"target": "here"}"#, "target", "an address and a port"),
        (
            r#"{"congestion_control": "reno"}"#,
            "congestion_control",
            "cubic",
        ),
        (r#"{"max_flows": 0}"#, "max_flows", "1"),
        (r#"{"nonsense": 1}"#, "nonsense", "unknown"),
    ] {
        let mut host = Application::new(0, &Post::default());
        let refused = Tun::start(options(config, 0, None), &mut host);
        let Err(ConfigError::Field(field, why)) = refused else {
            panic!("{config} is not refused for a field");
        };
        assert_eq!(field, path);
        assert!(why.contains(reason), "{config}: {why}");
    }
    for config in ["[]", "{", "1"] {
        let mut host = Application::new(0, &Post::default());
        let refused = Tun::start(options(config, 0, None), &mut host);
        assert!(matches!(refused, Err(ConfigError::Syntax(_))), "{config}");
    }
}
