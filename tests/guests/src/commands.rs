//! Commands in datagrams that begin with `!`.

use std::net::{IpAddr, SocketAddr};

use crate::watm::transport::crypto::{AeadAlgorithm, AeadKey};
use crate::watm::transport::flows::{self, DatagramFlow, Datagrams, FlowInfo};
use crate::watm::transport::generations::{Mailbox, MessageInfo, Messages};
use crate::watm::transport::log::{Level, log};
use crate::watm::transport::names::Lookup;
use crate::watm::transport::packets::PacketDevice;
use crate::watm::transport::pacing;
use crate::watm::transport::sockets::{self, ByteStream, DatagramBatch, DatagramSocket, Listener};
use crate::watm::transport::types::{Destination, ErrorCode, IpAddress, IpSocketAddress};
use crate::{Behaviour, Forward, entry, raw};

/// Handles that commands opened and keep.
#[derive(Default)]
pub struct Kept {
    pub streams: Vec<ByteStream>,
    datagrams: Vec<DatagramFlow>,
    keys: Vec<AeadKey>,
    lookups: Vec<Lookup>,
}

/// Runs a command. The caller returns the answer to its sender.
pub fn obey(forward: &mut Forward, command: &str) -> String {
    match command {
        "ping" => "pong".to_owned(),
        "who" => format!("{} after {:?}", forward.generation, forward.predecessor),
        "heard" => forward.heard.join(", "),
        "lie to others" => lie_to_others(forward),
        "trap" => panic!("told to"),
        "spin" => spin(),
        "eat" => eat(),
        "foreign" => {
            raw::read_foreign_handle();
            "still here".to_owned()
        }
        "log" => {
            for number in 0..100_000 {
                log(
                    Level::Error,
                    "flood",
                    &format!("record {number} {}", "x".repeat(10_000)),
                );
            }
            "logged".to_owned()
        }
        "again" => {
            forward.behaviour = Behaviour::Restless;
            "restless".to_owned()
        }
        "busy" => {
            forward.behaviour = Behaviour::Busy;
            "busy".to_owned()
        }
        "stop-receiving" => {
            forward.behaviour = Behaviour::NotReceiving;
            "stop-receiving".to_owned()
        }
        "open" => open(),
        "open devices" => open_devices(),
        "connect" => connect(),
        "lie" => lie(forward),
        "long" => long(forward),
        "coalesce" => {
            // More than the host's limit, which is 1000.
            pacing::coalesce(u32::MAX);
            "coalescing".to_owned()
        }
        "flows" => flows_without_end(forward),
        "fill" => fill(forward),
        "connections" => connections_without_end(forward),
        "disconnect" => {
            forward.kept.streams.clear();
            "disconnected".to_owned()
        }
        "churn" => churn(),
        "long reason" => long_reason(forward),
        "long names" => long_names(forward),
        "keys" => keys_without_end(forward),
        "crypto" => crypto(),
        "seal" => seal(),
        other => match other.split_once(' ') {
            Some(("tell", message)) => tell(forward, message),
            Some(("lookup", host)) => look_up(forward, host),
            Some(("send", datagrams)) => send_to(forward, datagrams),
            _ => format!("no such command: {other}"),
        },
    }
}

/// Looks up `name port`. Returns the answer, each time that it is asked. An empty name repeats the
/// last one.
fn look_up(forward: &mut Forward, host: &str) -> String {
    if let Some((name, port)) = host.split_once(' ') {
        let Ok(port) = port.parse() else {
            return "look up what?".to_owned();
        };
        match Lookup::start(name, port, 9) {
            Ok(lookup) => forward.kept.lookups.push(lookup),
            Err(code) => return format!("{code:?}"),
        }
    }
    match forward.kept.lookups.last() {
        Some(lookup) => format!("{:?}", lookup.addresses()),
        None => "nothing was looked up".to_owned(),
    }
}

/// Parses `address,address text`, sends the text to each of those in one batch, and nothing in
/// another one.
fn send_to(forward: &Forward, datagrams: &str) -> String {
    let Some((addresses, text)) = datagrams.split_once(' ') else {
        return "send what?".to_owned();
    };
    let mut batch = DatagramBatch {
        payload: Vec::new(),
        datagrams: Vec::new(),
    };
    for address in addresses.split(',') {
        let Ok(address) = address.parse::<SocketAddr>() else {
            return format!("no address: {address}");
        };
        let remote = IpSocketAddress {
            address: match address.ip() {
                IpAddr::V4(ip) => IpAddress::Ipv4(ip.octets().into()),
                IpAddr::V6(ip) => IpAddress::Ipv6(ip.segments().into()),
            },
            port: address.port(),
        };
        batch.payload.extend_from_slice(text.as_bytes());
        batch.datagrams.push(entry(remote, text.len() as u32));
    }
    let nothing = DatagramBatch {
        payload: Vec::new(),
        datagrams: Vec::new(),
    };
    let socket = forward.socket();
    format!("{:?} {:?}", socket.send(&batch), socket.send(&nothing))
}

/// Parses `generation text`, and sends the text to that generation.
fn tell(forward: &Forward, message: &str) -> String {
    let Some((Ok(generation), text)) = message
        .split_once(' ')
        .map(|(number, text)| (number.parse(), text))
    else {
        return "tell whom?".to_owned();
    };
    let messages = Messages {
        payload: text.as_bytes().to_vec(),
        messages: vec![MessageInfo {
            generation,
            len: text.len() as u32,
        }],
    };
    format!("{:?}", forward.mailbox.send(&messages))
}

/// Sends messages with wrong lengths, fills its own mailbox, and sends to another one.
fn lie_to_others(forward: &Forward) -> String {
    let send = |len: usize, lengths: &[u32]| {
        let info = |len: &u32| MessageInfo {
            generation: forward.generation,
            len: *len,
        };
        let messages = Messages {
            payload: vec![0; len],
            messages: lengths.iter().map(info).collect(),
        };
        format!("{:?}", forward.mailbox.send(&messages))
    };
    let mut filled = 0;
    while send(1 << 20, &[1 << 20]) == "Ok(1)" {
        filled += 1;
    }
    [
        send(10, &[u32::MAX]),
        send(10, &[5, 6]),
        format!("{filled}"),
        format!("{:?}", Mailbox::open(1).err()),
    ]
    .join(" ")
}

pub fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

fn eat() -> String {
    let mut eaten = Vec::new();
    loop {
        eaten.push(vec![1u8; 1 << 20]);
        std::hint::black_box(&eaten);
    }
}

/// Opens sockets that are taken, not granted, or of the other kind.
fn open() -> String {
    let mut answers = Vec::new();
    for label in ["listen", "other", "stream"] {
        answers.push(format!("{:?}", DatagramSocket::open(label, 9).err()));
        answers.push(format!("{:?}", Listener::open(label, 9).err()));
    }
    answers.join(" ")
}

fn open_devices() -> String {
    let answers = ["listen", "tun"].map(|label| format!("{:?}", PacketDevice::open(label, 9).err()));
    answers.join(" ")
}

/// Connects although nobody named a destination.
fn connect() -> String {
    let nowhere = Destination::Address(IpSocketAddress {
        address: IpAddress::Ipv4((127, 0, 0, 1)),
        port: 9,
    });
    format!("{:?}", sockets::connect(&nowhere, 9).err())
}

/// Opens connections to this machine and keeps them, until the host refuses.
fn connections_without_end(forward: &mut Forward) -> String {
    let before = forward.kept.streams.len();
    loop {
        match sockets::connect(&Destination::Address(anywhere()), 1010) {
            Ok(stream) => forward.kept.streams.push(stream),
            Err(code) => return format!("{} {code:?}", forward.kept.streams.len() - before),
        }
    }
}

/// Opens and drops handles within one call. Returns their number when the host refuses.
fn churn() -> String {
    for round in 0..100_000 {
        if let Err(code) = sockets::connect(&Destination::Address(anywhere()), 2000 + round) {
            return format!("{round} {code:?}");
        }
    }
    "100000".to_owned()
}

fn anywhere() -> IpSocketAddress {
    IpSocketAddress {
        address: IpAddress::Ipv4((127, 0, 0, 1)),
        port: 9,
    }
}

/// Sends datagrams of the longest size to this machine, and longer ones: with fragments, without,
/// and one after that.
fn long(forward: &Forward) -> String {
    let socket = forward.socket();
    let address = IpSocketAddress {
        address: IpAddress::Ipv4((127, 0, 0, 1)),
        port: 9,
    };
    let longest = socket.longest(address);
    let send = |len: u32| {
        let batch = DatagramBatch {
            payload: vec![0; len as usize],
            datagrams: vec![entry(address, len)],
        };
        format!("{:?}", socket.send(&batch))
    };
    let too_long = longest.unwrap_or(u32::from(u16::MAX)) + 1;
    let lost = send(too_long);
    socket.set_dont_fragment(true);
    let told = send(too_long);
    let after = send(1);
    socket.set_dont_fragment(false);
    format!("{longest:?} {lost} {told} {after}")
}

/// Passes lengths that do not add up, and limits out of all proportion.
fn lie(forward: &Forward) -> String {
    let socket = forward.socket();
    let send = |payload: Vec<u8>, lengths: &[u32], segment: Option<u16>| {
        let mut batch = DatagramBatch {
            payload,
            datagrams: Vec::new(),
        };
        for len in lengths {
            let mut info = entry(anywhere(), *len);
            info.segment_size = segment;
            batch.datagrams.push(info);
        }
        format!("{:?}", socket.send(&batch))
    };
    let flow = flows::open_datagrams(&forward.info(anywhere()), 99).expect("a flow");
    let hand = |payload: Vec<u8>, lengths: Vec<u32>| {
        format!("{:?}", flow.send(&Datagrams { payload, lengths }))
    };
    [
        send(vec![0; 10], &[u32::MAX], None),
        send(vec![0; 10], &[5, 6], None),
        send(vec![0; 10], &[u32::MAX, u32::MAX, 12], None),
        send(vec![0; 10], &[10], Some(0)),
        send(Vec::new(), &[], None),
        hand(vec![0; 10], vec![11]),
        hand(vec![0; 10], vec![u32::MAX, 11]),
        hand(vec![0; 70_000], vec![70_000]),
        format!(
            "{:?}",
            socket
                .receive(u32::MAX, u32::MAX)
                .map(|batch| batch.datagrams.len())
        ),
        format!(
            "{:?}",
            socket.receive(0, 0).map(|batch| batch.datagrams.len())
        ),
    ]
    .join(" ")
}

fn flows_without_end(forward: &mut Forward) -> String {
    let info = forward.info(anywhere());
    loop {
        match flows::open_stream(&info, 1000) {
            Ok(stream) => forward.kept.streams.push(stream),
            Err(code) => return format!("{} {code:?}", forward.kept.streams.len()),
        }
    }
}

/// Writes to a stream and to a datagram flow until they take no more.
fn fill(forward: &mut Forward) -> String {
    let info = forward.info(anywhere());
    let stream = flows::open_stream(&info, 1001).expect("a flow");
    let mut bytes = 0;
    while let Ok(count @ 1..) = stream.write(&[7; 100_000]) {
        bytes += count;
    }
    let flow = flows::open_datagrams(&info, 1002).expect("a flow");
    let mut datagrams = 0;
    let one = Datagrams {
        payload: vec![7; 100],
        lengths: vec![100],
    };
    while let Ok(1) = flow.send(&one) {
        datagrams += 1;
    }
    forward.kept.streams.push(stream);
    forward.kept.datagrams.push(flow);
    format!("{bytes} {datagrams}")
}

/// Resets a stream with a reason of a megabyte.
fn long_reason(forward: &Forward) -> String {
    let stream = flows::open_stream(&forward.info(anywhere()), 1003).expect("a flow");
    stream.reset(&ErrorCode::Other(Some("x".repeat(1 << 20))));
    "reset".to_owned()
}

/// Connects to hosts whose names have the longest allowed length, and longer ones.
fn long_names(forward: &Forward) -> String {
    let mut answers = Vec::new();
    for length in [255, 256, 1 << 20] {
        let name = "n".repeat(length);
        let destination = Destination::Name((name.clone(), 9));
        let info = FlowInfo {
            destination: destination.clone(),
            ..forward.info(anywhere())
        };
        let answer = [
            flows::open_stream(&info, 1004).err(),
            flows::open_datagrams(&info, 1005).err(),
            sockets::connect(&destination, 1006).err(),
            Lookup::start(&name, 9, 1007).err(),
        ];
        answers.push(answer.map(|code| format!("{code:?}")).join(" "));
    }
    answers.join("\n")
}

fn keys_without_end(forward: &mut Forward) -> String {
    loop {
        match AeadKey::create(AeadAlgorithm::Chacha20Poly1305, &[0; 32]) {
            Ok(key) => forward.kept.keys.push(key),
            Err(code) => return format!("{} {code:?}", forward.kept.keys.len()),
        }
    }
}

/// Makes one round trip with each cipher, and misuses it in every way.
fn crypto() -> String {
    let ciphers = [
        (AeadAlgorithm::Chacha20Poly1305, 32),
        (AeadAlgorithm::Aes128Gcm, 16),
        (AeadAlgorithm::Aes256Gcm, 32),
    ];
    let mut answers = Vec::new();
    for (algorithm, len) in ciphers {
        let key = match AeadKey::create(algorithm, &vec![1; len]) {
            Ok(key) => key,
            Err(code) => return format!("{code:?}"),
        };
        let sealed = key.seal(&[2; 12], b"header", b"text").expect("sealed");
        let opened = key.open(&[2; 12], b"header", &sealed).expect("opened");
        answers.push(format!(
            "{} {}",
            sealed.len(),
            opened == Some(b"text".to_vec())
        ));
        let forged = key.open(&[3; 12], b"header", &sealed).expect("answered");
        answers.push(format!("{forged:?}"));
        answers.push(format!("{:?}", key.seal(&[2; 11], b"", b"").err()));
        answers.push(format!("{:?}", key.open(&[2; 13], b"", &sealed).err()));
        answers.push(format!("{:?}", key.open(&[2; 12], b"", &[0; 15]).err()));
        answers.push(format!("{:?}", AeadKey::create(algorithm, &[0; 31]).err()));
    }
    answers.join(" ")
}

/// Seals as many full-sized packets as a measurement needs.
fn seal() -> String {
    let key = match AeadKey::create(AeadAlgorithm::Chacha20Poly1305, &[1; 32]) {
        Ok(key) => key,
        Err(code) => return format!("{code:?}"),
    };
    let packet = [3; 1420];
    for number in 0..100_000u64 {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        if key.seal(&nonce, b"", &packet).is_err() {
            return "refused".to_owned();
        }
    }
    "sealed".to_owned()
}
