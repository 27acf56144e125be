//! Random calls of the host that test its robustness: huge sizes, stale handles, wrong states,
//! traps in the middle. The configuration `hostile SEED` starts it. The same seed makes the same
//! choices for as long as the host answers the same.
//!
//! Each seed has one kind of call that it makes most of the time, so that consecutive seeds press
//! on one place after another.
//!
//! With `hostile :`, the bytes after it are the choices. The first two are the port of an echo server
//! on 127.0.0.1.

use watm_test_random::Random;

use crate::entry;
use crate::exports::watm::transport::endpoint::{ConfigError, PeerStatus, Status, Wakeup};
use crate::raw;
use crate::watm::transport::capture;
use crate::watm::transport::crypto::{AeadAlgorithm, AeadKey};
use crate::watm::transport::flows::{self, DatagramFlow, Datagrams, FlowInfo, Kind};
use crate::watm::transport::generations::{Mailbox, MessageInfo, Messages};
use crate::watm::transport::log::{Level, log};
use crate::watm::transport::names::Lookup;
use crate::watm::transport::pacing;
use crate::watm::transport::packets::{
    Checksum, Offloads, PacketBatch, PacketDevice, PacketInfo, PartialChecksum,
};
use crate::watm::transport::signing::PrivateKey;
use crate::watm::transport::sockets::{
    self, ByteStream, DatagramBatch, DatagramSocket, Direction, Listener,
};
use crate::watm::transport::types::{Destination, ErrorCode, IpAddress, IpSocketAddress};

/// The most handles of one kind that are kept, unless the host refuses before.
const MOST: usize = 70_000;

/// Sizes at which behaviour changes. The longest is half of the memory, so that it fits beside the
/// rest.
const SIZES: [usize; 12] = [
    0,
    1,
    63,
    255,
    256,
    257,
    4096,
    16_384,
    65_527,
    65_536,
    1 << 20,
    5 << 20,
];

/// The usual port in the addresses of a seed, without a server.
const DISCARD: u16 = 9;

/// The state of the module.
pub struct Hostile {
    random: Random,
    port: u16,
    socket: Option<DatagramSocket>,
    listener: Option<Listener>,
    device: Option<PacketDevice>,
    mailbox: Option<Mailbox>,
    streams: Vec<ByteStream>,
    datagrams: Vec<DatagramFlow>,
    keys: Vec<AeadKey>,
    lookups: Vec<Lookup>,
    signers: Vec<PrivateKey>,
    memory: Vec<Vec<u8>>,
    token: u64,
}

/// Random arguments of calls.
trait Arguments {
    fn size(&mut self) -> usize;
    fn text(&mut self) -> String;
    fn bytes(&mut self) -> Vec<u8>;
}

impl Arguments for Random {
    fn size(&mut self) -> usize {
        match self.one_in(2) {
            true => self.below(3000) as usize,
            false => SIZES[self.below(SIZES.len() as u64) as usize],
        }
    }

    fn text(&mut self) -> String {
        "x".repeat(self.size())
    }

    fn bytes(&mut self) -> Vec<u8> {
        vec![7; self.size()]
    }
}

/// The number of kinds of calls.
const KINDS: u64 = 19;

impl Hostile {
    /// Parses the choices in the configuration.
    pub fn start(config: Vec<u8>) -> Result<Hostile, ConfigError> {
        let mut random = Random::parse(config.leak())
            .ok_or_else(|| ConfigError::Syntax("hostile what?".to_owned()))?;
        let port = match random.is_of_bytes() {
            true => random.below(1 << 16) as u16,
            false => DISCARD,
        };
        Ok(Hostile {
            random,
            port,
            socket: DatagramSocket::open("listen", 1).ok(),
            listener: Listener::open("listen", 2).ok(),
            device: PacketDevice::open("tun", 4).ok(),
            mailbox: Mailbox::open(3).ok(),
            streams: Vec::new(),
            datagrams: Vec::new(),
            keys: Vec::new(),
            lookups: Vec::new(),
            signers: Vec::new(),
            memory: Vec::new(),
            token: 10,
        })
    }

    /// Makes some calls. Returns a random time for the next call.
    pub fn process(&mut self) -> Wakeup {
        for _ in 0..=self.random.below(64) {
            if self.random.is_over() {
                return Wakeup::OnReady;
            }
            let kind = self.random.kind(KINDS);
            self.act(kind);
        }
        match self.random.below(50) {
            0 => Wakeup::At(u64::MAX),
            1 => Wakeup::At(0),
            2 => Wakeup::Finished,
            _ => Wakeup::Again,
        }
    }

    fn act(&mut self, kind: u64) {
        match kind {
            0 => self.open_stream(),
            1 => self.open_datagrams(),
            2 => self.write_and_end(),
            3 => self.send_flow(),
            4 => self.connect(),
            5 => self.look_up(),
            6 => self.use_keys(),
            7 => self.send_mail(),
            8 => self.send_datagrams(),
            9 => self.open_and_drop(),
            10 => self.open_with_names(),
            11 => self.reset_with_text(),
            12 => self.say(),
            13 => self.eat(),
            14 => self.accept(),
            15 => self.fill_streams(),
            16 => self.retake(),
            17 => self.use_device(),
            _ => self.fail(),
        }
    }

    fn next_token(&mut self) -> u64 {
        self.token += 1;
        match self.random.one_in(10) {
            true => self.random.number(),
            false => self.token,
        }
    }

    fn address(&mut self) -> IpSocketAddress {
        let port = match self.random.one_in(3) {
            true => self.random.number() as u16,
            false => self.port,
        };
        IpSocketAddress {
            address: IpAddress::Ipv4((127, 0, 0, 1)),
            port,
        }
    }

    fn destination(&mut self) -> Destination {
        match self.random.one_in(2) {
            true => Destination::Address(self.address()),
            false => Destination::Name((self.random.text(), self.port)),
        }
    }

    fn info(&mut self) -> FlowInfo {
        FlowInfo {
            source: self.address(),
            destination: Destination::Address(self.address()),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        }
    }

    fn stream(&mut self) -> Option<&ByteStream> {
        let index = self.random.below(self.streams.len() as u64) as usize;
        self.streams.get(index)
    }

    fn keep_stream(&mut self, stream: ByteStream) {
        if self.streams.len() < MOST {
            self.streams.push(stream);
        } else {
            self.streams.clear();
        }
    }

    fn open_stream(&mut self) {
        let (info, token) = (self.info(), self.next_token());
        if let Ok(stream) = flows::open_stream(&info, token) {
            self.keep_stream(stream);
        }
    }

    fn open_datagrams(&mut self) {
        let (info, token) = (self.info(), self.next_token());
        if let Ok(flow) = flows::open_datagrams(&info, token) {
            flow.set_longest(self.random.number() as u32);
            self.datagrams.push(flow);
            if self.datagrams.len() > MOST {
                self.datagrams.clear();
            }
        }
    }

    /// Opens a flow with as many bytes of names as allowed, and more.
    fn open_with_names(&mut self) {
        let mut info = self.info();
        match self.random.below(4) {
            0 => info.destination = Destination::Name((self.random.text(), 1)),
            1 => info.peer = Some(self.random.text()),
            2 => info.attributes = vec![(String::new(), String::new()); self.random.size() >> 6],
            _ => info.attributes = vec![("a".to_owned(), "v".repeat(15_000))],
        }
        flows::accepts(Kind::Bytes, &info.destination);
        let token = self.next_token();
        if let Ok(stream) = flows::open_stream(&info, token) {
            self.keep_stream(stream);
        }
    }

    fn write_and_end(&mut self) {
        let bytes = self.random.bytes();
        let (what, size) = (self.random.below(8), self.random.number() as u32);
        let Some(stream) = self.stream() else {
            return self.open_stream();
        };
        match what {
            0 => drop(stream.shutdown(Direction::Read)),
            1 => drop(stream.shutdown(Direction::Write)),
            2 => drop(stream.shutdown(Direction::Both)),
            3 => drop(stream.read(size)),
            4 => {
                stream.connecting();
                stream.connected();
            }
            _ => drop(stream.write(&bytes)),
        }
    }

    /// Fills each stream, by writes that are longer than its room.
    fn fill_streams(&mut self) {
        self.open_stream();
        let size = 1 << self.random.below(23);
        if let Some(stream) = self.streams.last() {
            for _ in 0..8 {
                if stream.write(&vec![7; size]).is_err() {
                    break;
                }
            }
        }
    }

    fn reset_with_text(&mut self) {
        self.open_stream();
        let text = self.random.text();
        if let Some(stream) = self.stream() {
            stream.reset(&ErrorCode::Other(Some(text)));
        }
    }

    fn send_flow(&mut self) {
        let payload = self.random.bytes();
        let (parts, lie) = (self.random.below(100) as u32 + 1, self.random.one_in(20));
        let length = payload.len() as u32 / parts;
        let mut lengths = vec![length; parts as usize];
        lengths[0] += payload.len() as u32 - length * parts + u32::from(lie);
        let index = self.random.below(self.datagrams.len() as u64) as usize;
        let Some(flow) = self.datagrams.get(index) else {
            return self.open_datagrams();
        };
        let _ = flow.send(&Datagrams { payload, lengths });
        let _ = flow.receive(parts, u32::MAX);
    }

    fn send_datagrams(&mut self) {
        let payload = self.random.bytes();
        let parts = self.random.below(70) as u32 + 1;
        let length = payload.len() as u32 / parts;
        let remote = self.address();
        let mut batch = DatagramBatch {
            datagrams: (0..parts).map(|_| entry(remote, length)).collect(),
            payload,
        };
        batch.datagrams[0].len += batch.payload.len() as u32 - length * parts;
        batch.datagrams[0].segment_size = self.random.one_in(2).then_some(length as u16);
        if let Some(socket) = &self.socket {
            let _ = socket.send(&batch);
            let _ = socket.receive(parts, u32::MAX);
            let _ = socket.longest(remote);
            socket.set_dont_fragment(parts.is_multiple_of(2));
            socket.take_unreachable();
            // A socket of its own passes to itself, unless the number is that of no socket.
            let _ = socket.place();
            let _ = socket.pass(parts % 2, &batch);
            let _ = socket.passed(parts, u32::MAX);
        }
    }

    fn use_device(&mut self) {
        let label = self.random.text();
        let token = self.next_token();
        let other = PacketDevice::open(&label, token).ok();
        let Some(device) = other.as_ref().or(self.device.as_ref()) else {
            return;
        };
        device.mtu();
        let _ = device.receive(self.random.size() as u32, u32::MAX);
        let all = Offloads {
            checksum: true,
            tcp_segments: true,
            udp_segments: true,
        };
        device.set_offloads(all);
        let payload = self.random.bytes();
        let (start, offset) = (self.random.size() as u16, self.random.size() as u16);
        let info = PacketInfo {
            len: payload.len() as u32 / (1 + self.random.below(2) as u32),
            checksum: match self.random.below(3) {
                0 => Checksum::Complete,
                1 => Checksum::Verified,
                _ => Checksum::Partial(PartialChecksum { start, offset }),
            },
            segment_size: self.random.one_in(2).then_some(offset),
        };
        let packets = vec![info];
        let _ = device.send(&PacketBatch { payload, packets });
    }

    fn connect(&mut self) {
        let (destination, token) = (self.destination(), self.next_token());
        if let Ok(stream) = sockets::connect(&destination, token) {
            // Starts the read.
            let _ = stream.read(10);
            self.keep_stream(stream);
        }
        pacing::coalesce(self.random.below(2) as u32 * 1000);
    }

    fn accept(&mut self) {
        let token = self.next_token();
        if let Some(listener) = &self.listener
            && let Ok(Some(stream)) = listener.accept(token)
        {
            self.keep_stream(stream);
        }
    }

    fn look_up(&mut self) {
        let (name, token) = (self.random.text(), self.next_token());
        match Lookup::start(&name, 9, token) {
            Ok(lookup) => self.lookups.push(lookup),
            Err(_) => drop(self.lookups.pop()),
        }
        for lookup in self.lookups.iter().take(10) {
            let _ = lookup.addresses();
        }
    }

    fn use_keys(&mut self) {
        let algorithm = match self.random.below(3) {
            0 => AeadAlgorithm::Chacha20Poly1305,
            1 => AeadAlgorithm::Aes128Gcm,
            _ => AeadAlgorithm::Aes256Gcm,
        };
        let length = 16 << self.random.below(2);
        match AeadKey::create(algorithm, &vec![1; length]) {
            Ok(key) => self.keys.push(key),
            Err(_) => drop(self.keys.pop()),
        }
        let text = self.random.bytes();
        if let Some(key) = self.keys.last() {
            let _ = key.seal(&[2; 12], &text, &text);
            let _ = key.open(&[2; 12], b"", &text);
        }
        match PrivateKey::open(&self.random.text()) {
            Ok(key) => self.signers.push(key),
            Err(_) => self.signers.clear(),
        }
        if let Some(key) = self.signers.last() {
            let _ = key.sign(0x0403, &text);
        }
    }

    fn send_mail(&mut self) {
        let payload = self.random.bytes();
        let generation = self.random.below(3) as u32;
        let messages = match self.random.one_in(2) {
            true => vec![MessageInfo {
                generation,
                len: payload.len() as u32,
            }],
            // Empty ones.
            false => {
                let mut many = vec![MessageInfo { generation, len: 0 }; self.random.size() >> 4];
                many.push(MessageInfo {
                    generation,
                    len: payload.len() as u32,
                });
                many
            }
        };
        match (&self.mailbox, self.random.one_in(100)) {
            (Some(mailbox), false) => {
                let _ = mailbox.send(&Messages { payload, messages });
                if self.random.one_in(10) {
                    mailbox.receive(u32::MAX, u32::MAX);
                }
            }
            _ => {
                self.mailbox = None;
                let token = self.next_token();
                self.mailbox = Mailbox::open(token).ok();
            }
        }
    }

    /// Opens and drops handles repeatedly within one call.
    fn open_and_drop(&mut self) {
        let (info, what) = (self.info(), self.random.below(4));
        let destination = Destination::Address(self.address());
        for _ in 0..self.random.rounds(20_000) {
            let token = self.next_token();
            match what {
                0 => drop(flows::open_stream(&info, token)),
                1 => drop(flows::open_datagrams(&info, token)),
                2 => drop(sockets::connect(&destination, token)),
                _ => drop(Lookup::start("localhost", 9, token)),
            }
        }
    }

    /// Takes its own sockets repeatedly, and writes each time until there is no room.
    fn retake(&mut self) {
        for _ in 0..self.random.rounds(1000) {
            self.socket = None;
            let token = self.next_token();
            self.socket = DatagramSocket::open("listen", token).ok();
            if self.random.one_in(100) {
                self.send_datagrams();
            }
        }
        self.listener = None;
        let token = self.next_token();
        self.listener = Listener::open("listen", token).ok();
    }

    fn say(&mut self) {
        let (target, text) = (self.random.text(), self.random.text());
        for _ in 0..=self.random.below(1000) {
            log(
                Level::Error,
                &target[..target.len().min(100)],
                &text[..text.len().min(5000)],
            );
        }
        log(Level::Info, &target, &text);
        capture::packet(&target, capture::Direction::FromPeer, text.as_bytes());
        capture::secret(&text);
    }

    /// Uses its memory, nearly to the limit.
    fn eat(&mut self) {
        if self.memory.len() >= 4 {
            self.memory.clear();
        }
        self.memory.push(vec![1; 1 << 20]);
    }

    /// Sometimes ends the instance, or uses much time.
    fn fail(&mut self) {
        match self.random.below(4000) {
            0 => panic!("told to by the seed"),
            1 => raw::read_foreign_handle(),
            2 => {
                let _ = self.stream().map(|stream| stream.write(&vec![0; 9 << 20]));
            }
            3..20 => {
                for round in 0..10_000_000_u64 {
                    std::hint::black_box(round);
                }
            }
            20..40 => self.streams.truncate(self.streams.len() / 2),
            _ => {}
        }
    }

    /// Returns a snapshot that nobody can read.
    pub fn snapshot(&mut self) -> Vec<u8> {
        self.random.bytes()
    }

    /// Returns a status that is far too long. With bytes, returns a counter `over`, 1 if none are left.
    pub fn status(&mut self) -> Status {
        if self.random.is_of_bytes() {
            return Status {
                peers: Vec::new(),
                flows: u32::MAX,
                counters: vec![("over".to_owned(), self.random.is_over().into())],
            };
        }
        let count = self.random.size() >> 6;
        Status {
            peers: (0..count)
                .map(|_| PeerStatus {
                    name: self.random.text(),
                    endpoint: None,
                    last_handshake: Some(u64::MAX),
                    received_bytes: u64::MAX,
                    sent_bytes: 0,
                    round_trip: Some(u64::MAX),
                    loss_permille: Some(u16::MAX),
                })
                .take(3)
                .collect(),
            flows: u32::MAX,
            counters: (0..count)
                .map(|number| (format!("counter {number}"), u64::MAX))
                .collect(),
        }
    }
}
