//! A module that obeys its clients, harmful or not.
//!
//! It takes the datagram socket `listen` and passes each remote's datagrams to a datagram flow. A
//! datagram that begins with `!` is a command instead: see [`commands`]. The configuration is a
//! word: see [`Guest::start`](Module). With one that begins with `dial` it takes no socket, and
//! dials instead: see [`Forward::dialled`]. With one that begins with `hostile` it only does harm:
//! see [`hostile`].

mod commands;
mod hostile;
mod raw;

wit_bindgen::generate!({ path: "../../wit", world: "complete" });

use std::cell::RefCell;
use std::collections::BTreeMap;

use exports::watm::transport::datagram_dialer;
use exports::watm::transport::endpoint::{
    ClientConfig, ConfigError, Destination, ErrorCode, Guest, PeerStatus, StartOptions, Status,
    Wakeup,
};
use exports::watm::transport::network_observer;
use hostile::Hostile;
use watm::transport::flows::{self, DatagramFlow, Datagrams, FlowInfo};
use watm::transport::generations::Mailbox;
use watm::transport::sockets::{
    self, ByteStream, DatagramBatch, DatagramInfo, DatagramSocket, Ecn,
};
use watm::transport::types::IpSocketAddress;

const SOCKET: u64 = 0;
/// Tokens of a dialed connection, and of the stream that it is for.
const DIALLED: u64 = u64::MAX;
const APPLICATION: u64 = u64::MAX - 1;
const MAILBOX: u64 = u64::MAX - 2;
const BATCH: u32 = 64;
const BATCH_BYTES: u32 = 1 << 20;

/// Forwards the datagrams of each remote in a flow.
pub struct Forward {
    /// The socket, unless it dials.
    socket: Option<DatagramSocket>,
    /// Flows by token.
    flows: BTreeMap<u64, (IpSocketAddress, DatagramFlow)>,
    tokens: BTreeMap<String, u64>,
    last: u64,
    config: Vec<u8>,
    /// Its own generation, and the one that serves.
    generation: u32,
    serving: u32,
    predecessor: Option<String>,
    mailbox: Mailbox,
    /// Messages of other generations, and the ends of some.
    heard: Vec<String>,
    /// The behaviour that a command set, and the sender of that command.
    pub behaviour: Behaviour,
    commander: Option<IpSocketAddress>,
    pub received: u64,
    /// The number of network changes.
    networks: u64,
    pub kept: commands::Kept,
}

/// The behaviour from now on.
#[derive(PartialEq, Eq)]
pub enum Behaviour {
    Normal,
    /// Always requests another call at once.
    Restless,
    /// Requests another call, and sends something each time.
    Busy,
    /// Never receives.
    NotReceiving,
}

impl Forward {
    fn open(options: StartOptions) -> Result<Forward, ConfigError> {
        let config = options.config;
        let predecessor = options
            .predecessor
            .map(|snapshot| String::from_utf8_lossy(&snapshot).into_owned());
        let refused = |code| ConfigError::Other(Some(format!("the socket `listen`: {code:?}")));
        let socket = match config.starts_with(b"dial") {
            true => None,
            false => Some(DatagramSocket::open("listen", SOCKET).map_err(refused)?),
        };
        Ok(Forward {
            socket,
            flows: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last: SOCKET,
            generation: options.generation,
            // Its own turn comes with `serving`.
            serving: match &predecessor {
                Some(_) => u32::MAX,
                None => options.generation,
            },
            predecessor,
            mailbox: Mailbox::open(MAILBOX).expect("the first"),
            heard: Vec::new(),
            config,
            behaviour: Behaviour::Normal,
            commander: None,
            received: 0,
            networks: 0,
            kept: commands::Kept::default(),
        })
    }

    fn process(&mut self, ready: &[u64]) -> Wakeup {
        for token in ready {
            if *token == SOCKET {
                self.inward();
            } else if *token == MAILBOX {
                self.hear();
            } else if *token == DIALLED {
                self.dialled();
            } else {
                self.outward(*token);
            }
        }
        if self.serving != self.generation && self.flows.is_empty() {
            return Wakeup::Finished;
        }
        if self.behaviour == Behaviour::Busy
            && let Some(remote) = self.commander
        {
            self.send(remote, b"busy");
        }
        match self.behaviour {
            Behaviour::Restless | Behaviour::Busy => Wakeup::Again,
            Behaviour::Normal | Behaviour::NotReceiving => Wakeup::OnReady,
        }
    }

    fn hear(&mut self) {
        loop {
            let mail = self.mailbox.receive(BATCH, BATCH_BYTES);
            let mut rest = mail.messages.payload.as_slice();
            for info in &mail.messages.messages {
                let (text, tail) = rest.split_at(info.len as usize);
                rest = tail;
                let text = String::from_utf8_lossy(text);
                self.heard.push(format!("{}: {text}", info.generation));
            }
            for ended in &mail.ended {
                self.heard.push(format!("{ended} has ended"));
            }
            if mail.messages.messages.len() < BATCH as usize {
                break;
            }
        }
    }

    /// Decides what happens to a connection before it is used.
    fn dialled(&mut self) {
        match self.config.as_slice() {
            b"dial and trap" => panic!("told to"),
            // The outcome was never requested. The application's stream is kept.
            b"dial and drop" => drop(self.kept.streams.remove(0)),
            _ => {}
        }
    }

    fn inward(&mut self) {
        while self.behaviour != Behaviour::NotReceiving {
            let batch = self
                .socket()
                .receive(BATCH, BATCH_BYTES)
                .expect("the socket is ours");
            let short = batch.datagrams.len() < BATCH as usize;
            let mut rest = batch.payload.as_slice();
            for info in &batch.datagrams {
                let (bytes, tail) = rest.split_at(info.len as usize);
                rest = tail;
                let size = info.segment_size.map_or(bytes.len().max(1), usize::from);
                if bytes.is_empty() {
                    self.datagram(info, bytes);
                }
                for datagram in bytes.chunks(size) {
                    self.datagram(info, datagram);
                }
            }
            if short {
                break;
            }
        }
    }

    fn datagram(&mut self, info: &DatagramInfo, datagram: &[u8]) {
        self.received += 1;
        if let Some(command) = datagram.strip_prefix(b"!") {
            let command = String::from_utf8_lossy(command).into_owned();
            self.commander = Some(info.remote_address);
            let answer = commands::obey(self, &command);
            self.send(info.remote_address, answer.as_bytes());
            return;
        }
        let Some(token) = self.token(info) else {
            return;
        };
        let (_, flow) = &self.flows[&token];
        let sent = flow.send(&Datagrams {
            payload: datagram.to_vec(),
            lengths: vec![datagram.len() as u32],
        });
        if sent.is_err() {
            self.forget(token);
        }
    }

    fn token(&mut self, info: &DatagramInfo) -> Option<u64> {
        let name = format!("{:?}", info.remote_address);
        if let Some(token) = self.tokens.get(&name) {
            return Some(*token);
        }
        let token = self.last + 1;
        let flow = flows::open_datagrams(&self.info(info.remote_address), token).ok()?;
        self.last = token;
        self.tokens.insert(name, token);
        self.flows.insert(token, (info.remote_address, flow));
        Some(token)
    }

    fn dial(&mut self, remote: IpSocketAddress, flow: DatagramFlow) -> Result<u64, ErrorCode> {
        let name = format!("{remote:?}");
        if self.tokens.contains_key(&name) {
            return Err(ErrorCode::InvalidState);
        }
        self.last += 1;
        self.tokens.insert(name, self.last);
        self.flows.insert(self.last, (remote, flow));
        Ok(self.last)
    }

    /// Returns the facts about a flow from this remote.
    pub fn info(&self, remote: IpSocketAddress) -> FlowInfo {
        let local = self.socket().local_address();
        FlowInfo {
            source: remote,
            destination: Destination::Address(local),
            peer: Some("stranger".to_owned()),
            underlay: Some((remote, local)),
            attributes: vec![(
                "config".to_owned(),
                String::from_utf8_lossy(&self.config).into(),
            )],
        }
    }

    fn outward(&mut self, token: u64) {
        let Some((remote, flow)) = self.flows.get(&token) else {
            return;
        };
        let remote = *remote;
        loop {
            let Ok(Some(datagrams)) = flow.receive(BATCH, BATCH_BYTES) else {
                self.forget(token);
                return;
            };
            let mut batch = DatagramBatch {
                payload: datagrams.payload,
                datagrams: Vec::new(),
            };
            for len in &datagrams.lengths {
                batch.datagrams.push(entry(remote, *len));
            }
            // Datagrams that do not fit are lost, as any datagram may be.
            let _ = self.socket().send(&batch);
            if datagrams.lengths.len() < BATCH as usize {
                return;
            }
        }
    }

    fn forget(&mut self, token: u64) {
        self.flows.remove(&token);
        self.tokens.retain(|_, known| *known != token);
    }

    fn send(&self, remote: IpSocketAddress, datagram: &[u8]) {
        let batch = DatagramBatch {
            payload: datagram.to_vec(),
            datagrams: vec![entry(remote, datagram.len() as u32)],
        };
        let _ = self.socket().send(&batch);
    }

    /// Returns the socket, for commands that misuse it.
    pub fn socket(&self) -> &DatagramSocket {
        self.socket.as_ref().expect("taken")
    }
}

pub fn entry(remote: IpSocketAddress, len: u32) -> DatagramInfo {
    DatagramInfo {
        len,
        segment_size: None,
        remote_address: remote,
        local_address: None,
        ecn: Ecn::NotEct,
    }
}

thread_local! {
    static FORWARD: RefCell<Option<Forward>> = const { RefCell::new(None) };
    static HOSTILE: RefCell<Option<Hostile>> = const { RefCell::new(None) };
}

/// Runs `act` if the module is hostile.
fn hostile<T>(act: impl FnOnce(&mut Hostile) -> T) -> Option<T> {
    HOSTILE.with_borrow_mut(|hostile| hostile.as_mut().map(act))
}

struct Module;
export!(Module);

impl Guest for Module {
    fn start(options: StartOptions, _: u64) -> Result<(), ConfigError> {
        check(&options.config)?;
        if options.config == b"spin at start" {
            commands::spin();
        }
        if options.config.starts_with(b"hostile") {
            HOSTILE.set(Some(Hostile::start(options.config)?));
            return Ok(());
        }
        FORWARD.set(Some(Forward::open(options)?));
        Ok(())
    }

    fn reconfigure(config: Vec<u8>, _: u64) -> Result<(), ConfigError> {
        check(&config)?;
        FORWARD.with_borrow_mut(|forward| forward.as_mut().expect("started").config = config);
        Ok(())
    }

    fn process(_: u64, ready: Vec<u64>) -> Wakeup {
        if let Some(wakeup) = hostile(Hostile::process) {
            return wakeup;
        }
        FORWARD.with_borrow_mut(|forward| forward.as_mut().expect("started").process(&ready))
    }

    fn snapshot(_: u64) -> Vec<u8> {
        if let Some(snapshot) = hostile(Hostile::snapshot) {
            return snapshot;
        }
        FORWARD.with_borrow(|forward| {
            let forward = forward.as_ref().expect("started");
            if forward.config == b"trap at snapshot" {
                panic!("told to");
            }
            format!("guest {}", forward.generation).into_bytes()
        })
    }

    fn serving(generation: u32, _: u64) {
        if hostile(|_| ()).is_some() {
            return;
        }
        FORWARD.with_borrow_mut(|forward| {
            let forward = forward.as_mut().expect("started");
            forward.serving = generation;
            let own = generation == forward.generation;
            match forward.config.as_slice() {
                b"trap when serving" if own => panic!("told to"),
                b"trap when retired" if !own => panic!("told to"),
                _ => {}
            }
        });
    }

    fn dial(to: Option<Destination>, application: ByteStream, _: u64) -> Result<u64, ErrorCode> {
        FORWARD.with_borrow_mut(|forward| {
            let forward = forward.as_mut().expect("started");
            let to = to.filter(|_| forward.socket.is_none());
            let network = sockets::connect(&to.ok_or(ErrorCode::NotSupported)?, DIALLED)?;
            forward.kept.streams = vec![network, application];
            Ok(APPLICATION)
        })
    }

    fn get_status(_: u64) -> Status {
        if let Some(status) = hostile(Hostile::status) {
            return status;
        }
        FORWARD.with_borrow(|forward| {
            let forward = forward.as_ref().expect("started");
            if forward.config == b"slow" {
                for round in 0..20_000_000_u32 {
                    std::hint::black_box(round);
                }
            }
            Status {
                peers: vec![PeerStatus {
                    name: "stranger".to_owned(),
                    endpoint: None,
                    last_handshake: Some(1_500_000_000),
                    received_bytes: forward.received,
                    sent_bytes: 0,
                    round_trip: Some(40_000_000),
                    loss_permille: Some(60_000),
                }],
                flows: forward.flows.len() as u32,
                counters: vec![
                    ("received".to_owned(), forward.received),
                    ("networks".to_owned(), forward.networks),
                    // The host's, which stays as it is.
                    ("host.restarts".to_owned(), u64::MAX),
                ],
            }
        })
    }

    fn client_configs(public: Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        match public {
            Destination::Address(_) => Err(ErrorCode::NotSupported),
            Destination::Name((host, port)) => Ok(vec![ClientConfig {
                peer: None,
                name: "client.conf".to_owned(),
                media_type: "text/plain".to_owned(),
                content: format!("{host} {port}"),
            }]),
        }
    }
}

impl datagram_dialer::Guest for Module {
    /// Dials by the socket, as the flow of that remote.
    fn dial_datagrams(
        to: Option<Destination>,
        application: DatagramFlow,
        _: u64,
    ) -> Result<u64, ErrorCode> {
        FORWARD.with_borrow_mut(|forward| {
            let forward = forward.as_mut().expect("started");
            match (to, &forward.socket) {
                (Some(Destination::Address(remote)), Some(_)) => forward.dial(remote, application),
                _ => Err(ErrorCode::NotSupported),
            }
        })
    }
}

impl network_observer::Guest for Module {
    fn network_changed(_: u64) {
        if hostile(|_| ()).is_some() {
            return;
        }
        FORWARD.with_borrow_mut(|forward| forward.as_mut().expect("started").networks += 1);
    }
}

/// Checks a configuration for `start` and `reconfigure`. Any other is accepted.
fn check(config: &[u8]) -> Result<(), ConfigError> {
    match config {
        b"trap" => panic!("told to"),
        b"spin" => commands::spin(),
        b"syntax" => Err(ConfigError::Syntax("line 1: not a word".to_owned())),
        b"field" => Err(ConfigError::Field((
            "port".to_owned(),
            "must be a number".to_owned(),
        ))),
        _ => Ok(()),
    }
}
