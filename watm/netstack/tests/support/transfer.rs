//! Transfers over a rough path, in virtual time: from the stack, and from one stack to another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use watm_core::{Host, Instant};
use watm_netstack::Config;

use super::path::Case;
use super::{Bench, Receiver, StreamEnd, origin, packets};

/// The byte at an offset of the sent data.
fn pattern(offset: usize) -> u8 {
    (offset % 251) as u8
}

/// The bytes of a packet of the handshake.
const HANDSHAKE: usize = 60;

/// An open connection of the stack, which is the sender, and the other end.
fn connect(bench: &mut Bench, case: &Case) -> (StreamEnd, Receiver) {
    let address: SocketAddr = "10.0.0.2:5000".parse().unwrap();
    let (mut there, mut back) = case.ways();
    // The stack's first packet leaves at 0, and all others as they come.
    let pass = |bench: &mut Bench, way: &mut dyn FnMut(Duration) -> Duration| {
        let now = Duration::from_nanos(bench.app.now().0);
        bench.wait(way(now) - now)
    };
    let mut go = |now| there.arrivals(now, HANDSHAKE)[0];
    let mut come = |now| back.arrivals(now, HANDSHAKE)[0];
    if case.seed.is_multiple_of(2) {
        let stream = bench.dial(1, address).unwrap();
        let syn = packets::read_tcp(&bench.settle()[0]);
        let peer = format!("10.0.0.1:{}", syn.source_port).parse().unwrap();
        let next = syn.sequence.wrapping_add(1);
        pass(bench, &mut go);
        pass(bench, &mut come);
        bench.packet(1, &answer(address, peer, Some(next)).packet());
        return (stream, Receiver::new(address, peer, 101, next));
    }
    let peer: SocketAddr = "93.184.216.34:80".parse().unwrap();
    let accepted = bench.packet(1, &answer(address, peer, None).packet());
    let next = packets::read_tcp(&accepted[0]).sequence.wrapping_add(1);
    pass(bench, &mut go);
    pass(bench, &mut come);
    let third = packets::Tcp {
        control: TcpControl::None,
        sequence: 101,
        ..answer(address, peer, Some(next))
    };
    bench.packet(1, &third.packet());
    let stream = bench.app.streams().last().cloned().unwrap();
    (stream, Receiver::new(address, peer, 101, next))
}

/// The other end's SYN.
fn answer(
    source: SocketAddr,
    destination: SocketAddr,
    acknowledges: Option<u32>,
) -> packets::Tcp<'static> {
    packets::Tcp {
        source,
        destination,
        control: TcpControl::Syn,
        sequence: 100,
        acknowledges,
        window: u16::MAX,
        scale: Some(7),
        payload: &[],
        sack: None,
    }
}

/// The time that the stack needs from the first write until everything has arrived. The error says
/// what was missing when it no longer made progress.
pub fn transfer(case: &Case) -> Result<Duration, String> {
    let mut bench = Bench::new(Config::default());
    let (stream, mut receiver) = connect(&mut bench, case);
    receiver.window = case.window;
    let begun = bench.app.now();
    let since = |at: Instant| Duration::from_nanos(at.0);
    let (mut there, mut back) = case.ways();
    let total: usize = case.writes.iter().map(|(_, bytes)| bytes).sum();
    let content: Vec<u8> = (0..total).map(pattern).collect();
    let first = receiver.next;
    let mut written = 0;
    let mut writes = case.writes.iter().peekable();
    // Packets by their arrival, and true if they go to the receiver.
    let mut on_their_way = BinaryHeap::new();
    let mut number = 0_u64;
    // A bound that no transfer needs.
    let end = begun + Duration::from_secs(300);
    loop {
        let now = bench.app.now();
        while let Some((_, bytes)) = writes.next_if(|(at, _)| begun + *at <= now) {
            stream.write(&content[written..written + bytes]);
            written += bytes;
        }
        bench.rest();
        for (_, packet) in std::mem::take(&mut bench.sent.0) {
            for at in there.arrivals(since(now), packet.len()) {
                number += 1;
                on_their_way.push(Reverse((
                    Instant::default() + at,
                    number,
                    true,
                    packet.clone(),
                )));
            }
        }
        let arrived = receiver.next.wrapping_sub(first) as usize;
        if arrived == total {
            return Ok(now - begun);
        }
        let events = [
            on_their_way.peek().map(|Reverse((at, ..))| *at),
            writes.peek().map(|(at, _)| begun + *at),
            receiver.due(),
            bench.stack.poll_timeout(),
        ];
        let next = events.into_iter().flatten().min().filter(|at| *at < end);
        let Some(next) = next else {
            return Err(format!("{arrived} of {total} bytes arrived, and no more"));
        };
        let now = next.max(now);
        bench.app.set_now(now);
        let mut answers = Vec::from_iter(receiver.on_time(now));
        while on_their_way
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= now)
        {
            let Some(Reverse((.., is_there, packet))) = on_their_way.pop() else {
                break;
            };
            if !is_there {
                let bench = &mut bench;
                bench
                    .stack
                    .handle_packet(&origin(1), &packet, &mut bench.app, &mut bench.sent);
                continue;
            }
            let segment = packets::read_tcp(&packet);
            if segment.reset {
                return Err(format!("reset after {arrived} of {total} bytes"));
            }
            let length = segment.payload.len();
            if length == 0 {
                continue;
            }
            let offset = segment.sequence.wrapping_sub(first) as usize;
            // A probe repeats the last byte, and may have it wrong (RFC 9293 section 3.8.4).
            let probes = length == 1 && receiver.next.wrapping_sub(segment.sequence) == 1;
            if !probes && content.get(offset..offset + length) != Some(&segment.payload[..]) {
                return Err(format!("wrong bytes at {offset}"));
            }
            let end = segment.sequence.wrapping_add(length as u32);
            answers.extend(receiver.take(segment.sequence, end, now));
        }
        for packet in answers {
            for at in back.arrivals(since(now), packet.len()) {
                number += 1;
                on_their_way.push(Reverse((
                    Instant::default() + at,
                    number,
                    false,
                    packet.clone(),
                )));
            }
        }
        if bench.stack.poll_timeout().is_some_and(|at| at <= now) {
            bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
        }
    }
}

/// The time that one stack needs to send everything to another, which receives. See [`transfer`].
pub fn transfer_between(case: &Case) -> Result<Duration, String> {
    let (mut sender, mut receiver) = (Bench::new(Config::default()), Bench::new(Config::default()));
    let stream = sender.dial(1, "10.0.0.2:5000".parse().unwrap()).unwrap();
    let (mut there, mut back) = case.ways();
    let total: usize = case.writes.iter().map(|(_, bytes)| bytes).sum();
    let content: Vec<u8> = (0..total).map(pattern).collect();
    let (mut written, mut arrived) = (0, 0);
    let mut writes = case.writes.iter().peekable();
    // Set once the handshake is done.
    let mut begun = None;
    // Packets by their arrival, and true if they go to the receiver.
    let mut on_their_way = BinaryHeap::new();
    let mut number = 0_u64;
    // A bound that no transfer needs.
    let end = Instant::default() + Duration::from_secs(300);
    loop {
        let now = sender.app.now();
        if stream.is_connected() {
            let begun = *begun.get_or_insert(now);
            while let Some((_, bytes)) = writes.next_if(|(at, _)| begun + *at <= now) {
                stream.write(&content[written..written + bytes]);
                written += bytes;
            }
        }
        for (bench, way, is_there) in [
            (&mut sender, &mut there, true),
            (&mut receiver, &mut back, false),
        ] {
            bench.rest();
            for (_, packet) in std::mem::take(&mut bench.sent.0) {
                for at in way.arrivals(Duration::from_nanos(now.0), packet.len()) {
                    number += 1;
                    let at = Instant::default() + at;
                    on_their_way.push(Reverse((at, number, is_there, packet.clone())));
                }
            }
        }
        if let Some(end) = receiver.app.streams().first() {
            let read = end.read();
            if content.get(arrived..arrived + read.len()) != Some(&read[..]) {
                return Err(format!("wrong bytes at {arrived}"));
            }
            arrived += read.len();
        }
        if let Some(begun) = begun
            && arrived == total
        {
            return Ok(now - begun);
        }
        let events = [
            on_their_way.peek().map(|Reverse((at, ..))| *at),
            begun.and_then(|begun| writes.peek().map(|(at, _)| begun + *at)),
            sender.stack.poll_timeout(),
            receiver.stack.poll_timeout(),
        ];
        let next = events.into_iter().flatten().min().filter(|at| *at < end);
        let Some(next) = next else {
            return Err(format!("{arrived} of {total} bytes arrived, and no more"));
        };
        let now = next.max(now);
        for bench in [&mut sender, &mut receiver] {
            bench.app.set_now(now);
        }
        while on_their_way
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= now)
        {
            let Some(Reverse((.., is_there, packet))) = on_their_way.pop() else {
                break;
            };
            let bench = if is_there { &mut receiver } else { &mut sender };
            bench
                .stack
                .handle_packet(&origin(1), &packet, &mut bench.app, &mut bench.sent);
        }
        for bench in [&mut sender, &mut receiver] {
            if bench.stack.poll_timeout().is_some_and(|at| at <= now) {
                bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
            }
        }
    }
}
