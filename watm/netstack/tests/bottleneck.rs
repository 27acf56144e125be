//! Flows of the stack that share a path with a bottleneck, in virtual time.

mod support;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::{Bench, Random, Receiver, StreamEnd, packets};
use watm_core::{Host, Instant};
use watm_netstack::{Algorithm, Config};

/// A path with half of its round trip each way, and a queue of a round trip and 20 ms before the
/// bottleneck on the way there.
struct Path {
    round_trip: Duration,
    mbits: f64,
    /// The loss on the way there, in thousandths.
    loss: usize,
}

/// The throughput of the stack's flows in each of several seconds, as a share of the path's.
fn reached(algorithm: Algorithm, path: &Path, flows: usize, seconds: usize) -> Vec<f64> {
    let mut bench = Bench::new(Config {
        congestion: algorithm,
        ..Config::default()
    });
    let mut random = Random(7);
    let mut streams: Vec<StreamEnd> = Vec::new();
    let mut receivers = Vec::new();
    for number in 0..flows {
        let address: SocketAddr = format!("10.0.0.2:{}", 5000 + number).parse().unwrap();
        streams.push(bench.dial(1, address).unwrap());
        let syn = packets::read_tcp(&bench.settle()[0]);
        let peer = format!("10.0.0.1:{}", syn.source_port).parse().unwrap();
        let mut receiver = Receiver::new(address, peer, 100, syn.sequence.wrapping_add(1));
        let accepted = packets::Tcp {
            source: receiver.address,
            destination: receiver.peer,
            control: TcpControl::Syn,
            sequence: receiver.sequence,
            acknowledges: Some(receiver.next),
            window: u16::MAX,
            scale: Some(7),
            payload: &[],
            sack: None,
        };
        bench.wait(path.round_trip);
        bench.packet(1, &accepted.packet());
        receiver.sequence += 1;
        receivers.push(receiver);
    }
    let begun = bench.app.now();
    let longest = path.round_trip + Duration::from_millis(20);
    let block = vec![1; 1 << 20];
    let mut there: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut back: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut free = begun;
    let mut arrived = vec![0; seconds];
    loop {
        for stream in &streams {
            if stream.unsent() < block.len() {
                stream.write(&block);
            }
        }
        bench.rest();
        let now = bench.app.now();
        for (_, packet) in std::mem::take(&mut bench.sent.0) {
            if random.below(1000) < path.loss {
                continue;
            }
            free = free.max(now);
            if free - now > longest {
                continue;
            }
            free = free + Duration::from_secs_f64(packet.len() as f64 * 8e-6 / path.mbits);
            there.push_back((free + path.round_trip / 2, packet));
        }
        let next = [there.front(), back.front()]
            .into_iter()
            .flatten()
            .map(|(at, _)| *at);
        let next = next
            .chain(bench.stack.poll_timeout())
            .min()
            .unwrap()
            .max(now);
        if next >= begun + Duration::from_secs(seconds as u64) {
            break;
        }
        bench.app.set_now(next);
        while let Some((_, packet)) = there.pop_front_if(|(at, _)| *at <= next) {
            let segment = packets::read_tcp(&packet);
            let number = usize::from(segment.destination_port) - 5000;
            let start = segment.sequence;
            let before = receivers[number].next;
            let end = start.wrapping_add(segment.payload.len() as u32);
            let answer = (start != end)
                .then(|| receivers[number].take(start, end, next))
                .flatten();
            let came = receivers[number].next.wrapping_sub(before);
            arrived[(next - begun).as_secs() as usize] += came as usize;
            back.extend(answer.map(|answer| (next + path.round_trip / 2, answer)));
        }
        let mut due = Vec::new();
        while let Some((_, packet)) = back.pop_front_if(|(at, _)| *at <= next) {
            due.push(packet);
        }
        for packet in due {
            let bench = &mut bench;
            bench.stack.handle_packet(
                &support::origin(1),
                &packet,
                &mut bench.app,
                &mut bench.sent,
            );
        }
        if bench.stack.poll_timeout().is_some_and(|at| at <= next) {
            bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
        }
    }
    let most = path.mbits * 125e3;
    arrived.iter().map(|&bytes| bytes as f64 / most).collect()
}

/// The throughput after the first seconds, as a share of the path's.
fn share(algorithm: Algorithm, path: &Path, flows: usize) -> f64 {
    const WARM: usize = 2;
    let each = reached(algorithm, path, flows, 6);
    each[WARM..].iter().sum::<f64>() / (each.len() - WARM) as f64
}

#[test]
fn flows_fill_a_path_together_without_losing_much() {
    for (milliseconds, mbits) in [(100, 100.0), (20, 200.0)] {
        for flows in [1, 4] {
            let path = Path {
                round_trip: Duration::from_millis(milliseconds),
                mbits,
                loss: 0,
            };
            let share = share(Algorithm::Cubic, &path, flows);
            assert!(
                share > 0.9,
                "{share} of {mbits} Mbit/s and {milliseconds} ms by {flows}"
            );
        }
    }
}

/// A loss shrinks the window only if there is a queue, or if there are many. With the rate of Reno
/// at that loss (Mathis et al., 1997) a stream would reach a thirtieth here.
#[test]
fn a_way_that_loses_by_itself_is_used() {
    for (loss, flows, least) in [(10, 1, 0.12), (10, 4, 0.4), (1, 4, 0.7)] {
        let path = Path {
            round_trip: Duration::from_millis(20),
            mbits: 200.0,
            loss,
        };
        let share = share(Algorithm::Cubic, &path, flows);
        assert!(share > least, "{share} by {flows} at {loss} in 1000");
    }
}

/// There is no rate of losses from which on little is left: the window shrinks for the losses
/// beyond the tolerated ones. Where each one shrank it, a stream reached less than 5 % at 20 in
/// 1000, and less than 3 % at 25.
#[test]
fn a_few_more_losses_are_no_cliff() {
    for (loss, least) in [(15, 0.4), (20, 0.1), (25, 0.05)] {
        let path = Path {
            round_trip: Duration::from_millis(20),
            mbits: 200.0,
            loss,
        };
        let each = reached(Algorithm::Cubic, &path, 1, 12);
        let share = each[2..].iter().sum::<f64>() / (each.len() - 2) as f64;
        assert!(share > least, "{share} at {loss} in 1000");
    }
}

#[test]
fn bbr_fills_a_path_and_tolerates_its_losses() {
    for (loss, flows, least) in [(0, 1, 0.9), (10, 1, 0.85), (10, 4, 0.85)] {
        let path = Path {
            round_trip: Duration::from_millis(20),
            mbits: 200.0,
            loss,
        };
        let share = share(Algorithm::Bbr, &path, flows);
        assert!(share > least, "{share} by {flows} at {loss} in 1000");
    }
}
