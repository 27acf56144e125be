//! TCP between a real client and the stack.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, State};
use smoltcp::wire::TcpControl;
use support::{Bench, Conditions, MINUTES, Random, Simulation, packets};
use watm_core::ErrorCode;
use watm_netstack::Config;

const ROUND_TRIP: Duration = Duration::from_millis(100);

fn v4() -> SocketAddr {
    "93.184.216.34:80".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[2606:2800:220:1::1]:443".parse().unwrap()
}

/// Like [`Simulation::exchange`], in a connection of the client.
fn exchange(simulation: &mut Simulation, destination: SocketAddr, size: usize) {
    let (handle, stream) = simulation.connect(destination);
    simulation.exchange(handle, &stream, size);
}

#[test]
fn bytes_pass_both_ways() {
    for destination in [v4(), v6()] {
        let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
        exchange(&mut simulation, destination, 3_000_000);
    }
}

#[test]
fn bytes_pass_a_bad_network_unchanged() {
    for (seed, loss) in [(1, 10), (2, 20), (3, 50)] {
        let conditions = Conditions {
            delay: ROUND_TRIP / 2,
            jitter: Duration::from_millis(5),
            loss,
            duplication: 10,
        };
        let mut simulation = Simulation::new(conditions, seed);
        exchange(&mut simulation, v4(), 300_000);
    }
}

#[test]
fn what_a_slow_path_loses_comes_again() {
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1300)), 1);
    let (handle, stream) = simulation.connect(v4());
    simulation.down.conditions.loss = 1000;
    stream.write(&[1; 5000]);
    simulation.run_for(Duration::from_millis(500));
    simulation.down.conditions.loss = 0;
    simulation.run_for(Duration::from_secs(15));
    assert_eq!(received(&mut simulation, handle), 5000);
}

/// Counts the bytes that arrive in one round trip once the flow is up to speed.
#[test]
fn a_long_path_is_filled_up() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    let block = vec![7; 1 << 20];
    // The measurement is of the stack's window, not the client's.
    let client = simulation.client.socket(handle);
    client.set_congestion_control(CongestionControl::None);
    let mut arrived = 0;
    let mut upload = |simulation: &mut Simulation, time| {
        let end = simulation.now() + time;
        let before = arrived;
        simulation.run_until(time + ROUND_TRIP, |sim| {
            let socket = sim.client.socket(handle);
            while socket.can_send() {
                socket.send_slice(&block).unwrap();
            }
            arrived += stream.read().len();
            sim.now() >= end
        });
        arrived - before
    };
    upload(&mut simulation, Duration::from_secs(5));
    let per_round_trip = upload(&mut simulation, ROUND_TRIP * 10) / 10;
    assert!(per_round_trip > 1 << 20, "up: {per_round_trip} bytes");

    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    let mut arrived = 0;
    let mut download = |simulation: &mut Simulation, time| {
        let end = simulation.now() + time;
        let before = arrived;
        simulation.run_until(time + ROUND_TRIP, |sim| {
            if stream.unsent() < block.len() {
                stream.write(&block);
            }
            let socket = sim.client.socket(handle);
            while socket.can_recv() {
                arrived += socket.recv(|data| (data.len(), data.len())).unwrap();
            }
            sim.now() >= end
        });
        arrived - before
    };
    download(&mut simulation, Duration::from_secs(5));
    let per_round_trip = download(&mut simulation, ROUND_TRIP * 10) / 10;
    assert!(per_round_trip > 1 << 20, "down: {per_round_trip} bytes");
}

#[test]
fn either_side_may_close_first() {
    // The client closes, and continues to read.
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    simulation
        .client
        .socket(handle)
        .send_slice(b"question")
        .unwrap();
    simulation.client.socket(handle).close();
    simulation.run_until(MINUTES, |_| stream.ended());
    assert_eq!(stream.read(), b"question");
    simulation.run_for(Duration::from_secs(300));
    stream.write(b"late answer");
    stream.close();
    simulation.run_until(MINUTES, |_| stream.gone());
    assert!(stream.finished());
    assert_eq!(stream.reset(), None);
    let socket = simulation.client.socket(handle);
    let mut answer = [0; 20];
    let count = socket.recv_slice(&mut answer).unwrap();
    assert_eq!(&answer[..count], b"late answer");

    // The application closes, and continues to read.
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    stream.write(b"greeting");
    stream.close();
    simulation.run_until(MINUTES, |sim| {
        sim.client.socket(handle).state() == State::CloseWait
    });
    assert!(!stream.ended() && !stream.gone());
    simulation.run_for(Duration::from_secs(300));
    simulation
        .client
        .socket(handle)
        .send_slice(b"and more")
        .unwrap();
    simulation.client.socket(handle).close();
    simulation.run_until(MINUTES, |_| stream.gone());
    assert_eq!(stream.read(), b"and more");
    assert!(stream.finished());
    assert_eq!(stream.reset(), None);
}

#[test]
fn the_end_waits_for_a_slow_reader() {
    for application_closes_first in [false, true] {
        let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
        simulation.bench.app.room = Some(10);
        let (handle, stream) = simulation.connect(v4());
        if application_closes_first {
            stream.close();
            simulation.run_for(ROUND_TRIP * 3);
        }
        let data = Random(3).bytes(5000);
        simulation.client.socket(handle).send_slice(&data).unwrap();
        simulation.client.socket(handle).close();
        // A time longer than TIME-WAIT.
        simulation.run_for(Duration::from_secs(30));
        assert!(!stream.ended());
        let mut got = stream.read();
        while !stream.ended() {
            simulation.run_for(Duration::from_millis(1));
            got.extend(stream.read());
        }
        assert!(got == data);
        stream.close();
        simulation.run_for(Duration::from_secs(30));
        assert!(stream.gone() && stream.finished());
        assert_eq!(stream.reset(), None);
        assert_eq!(simulation.bench.stack.flows(), 0);
    }
}

#[test]
fn a_reset_passes_both_ways() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    simulation.client.socket(handle).abort();
    simulation.run_until(MINUTES, |_| stream.gone());
    assert_eq!(stream.reset(), Some(ErrorCode::ConnectionReset));
    assert_eq!(simulation.bench.stack.flows(), 0);

    let (handle, stream) = simulation.connect(v4());
    stream.abort();
    simulation.run_until(MINUTES, |sim| {
        sim.client.socket(handle).state() == State::Closed
    });
    assert!(stream.gone());
    assert_eq!(simulation.bench.stack.flows(), 0);
}

#[test]
fn an_application_that_refuses_resets_the_connection() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    simulation.bench.app.refuse = Some(ErrorCode::LimitReached);
    let handle = simulation.client.connect(v4());
    simulation.run_for(ROUND_TRIP * 3);
    assert_eq!(simulation.client.socket(handle).state(), State::Closed);
    assert_eq!(simulation.bench.counter("tcp_refused"), 1);
    assert_eq!(simulation.bench.stack.flows(), 0);
}

#[test]
fn a_slow_reader_stops_the_sender_and_loses_nothing() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    simulation.bench.app.room = Some(1000);
    let (handle, stream) = simulation.connect(v4());
    let data = Random(4).bytes(2_000_000);
    let mut sent = 0;
    let mut feed = |sim: &mut Simulation| {
        let socket = sim.client.socket(handle);
        if socket.can_send() && sent < data.len() {
            sent += socket.send_slice(&data[sent..]).unwrap();
        }
        sent == data.len()
    };
    simulation.run_until(MINUTES, &mut feed);
    simulation.run_for(Duration::from_secs(600));
    assert_eq!(stream.waiting(), 1000);
    // A window of 64 KiB lies in at most two chunks.
    assert!(simulation.bench.stack.held_bytes() <= 128 << 10);
    let quiet = simulation.packets_up;
    simulation.run_for(Duration::from_secs(60));
    let probes = simulation.packets_up - quiet;
    assert!(probes < 10, "{probes} packets while the window was closed");
    stream.set_room(usize::MAX);
    let mut got = Vec::new();
    simulation.run_until(MINUTES, |sim| {
        feed(sim);
        got.extend(stream.read());
        got.len() == data.len()
    });
    assert!(got == data);
    assert_eq!(simulation.bench.stack.held_bytes(), 0);
}

#[test]
fn a_client_that_does_not_read_stops_the_application() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    let data = Random(5).bytes(20 << 20);
    stream.write(&data);
    simulation.run_for(Duration::from_secs(60));
    let unsent = stream.unsent();
    assert!(unsent > 10 << 20, "the stack took all but {unsent}");
    assert!(simulation.bench.stack.held_bytes() <= 2 << 20);
    let mut got = Vec::new();
    simulation.run_until(MINUTES, |sim| {
        let socket = sim.client.socket(handle);
        while socket.can_recv() {
            socket
                .recv(|data| (data.len(), got.extend_from_slice(data)))
                .unwrap();
        }
        got.len() == data.len()
    });
    assert!(got == data);
    simulation.run_for(ROUND_TRIP);
    assert_eq!(simulation.bench.stack.held_bytes(), 0);
}

#[test]
fn a_silent_client_is_given_up_in_time() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (_, stream) = simulation.connect(v4());
    simulation.run_for(Duration::from_secs(3600));
    assert!(!stream.gone(), "an idle client answers keep-alives");
    simulation.up.conditions.loss = 1000;
    simulation.run_for(Duration::from_secs(180));
    assert!(!stream.gone());
    simulation.run_for(Duration::from_secs(180));
    assert!(stream.gone());
    assert_eq!(stream.reset(), Some(ErrorCode::Timeout));
    assert_eq!(simulation.bench.counter("tcp_timed_out"), 1);
    assert_eq!(simulation.bench.stack.flows(), 0);
}

/// The bytes that the client has received in order.
fn received(simulation: &mut Simulation, handle: SocketHandle) -> usize {
    simulation.client.socket(handle).recv_queue()
}

#[test]
fn what_is_lost_at_the_end_is_sent_again_soon() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    // The round trip is measured with these.
    stream.write(&[1; 1000]);
    simulation.run_until(MINUTES, |simulation| received(simulation, handle) == 1000);
    simulation.run_for(ROUND_TRIP);
    simulation.down.conditions.loss = 1000;
    stream.write(&[2; 5000]);
    simulation.run_for(ROUND_TRIP);
    simulation.down.conditions.loss = 0;
    // A timeout of at least 300 ms, spread over a quarter more, and three trips to the client.
    simulation.run_for(ROUND_TRIP * 6);
    assert_eq!(received(&mut simulation, handle), 6000);
}

#[test]
fn a_client_that_goes_silent_while_bytes_are_on_their_way_has_its_time() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    stream.write(&[1; 1000]);
    simulation.run_for(ROUND_TRIP * 2);
    for (silence, comes_back) in [(190, true), (360, false)] {
        simulation.up.conditions.loss = 1000;
        simulation.down.conditions.loss = 1000;
        stream.write(&[2; 5000]);
        simulation.run_for(Duration::from_secs(silence));
        assert_eq!(stream.gone(), !comes_back, "after {silence} s");
        simulation.up.conditions.loss = 0;
        simulation.down.conditions.loss = 0;
        simulation.run_for(Duration::from_secs(70));
        assert_eq!(received(&mut simulation, handle), 6000, "after {silence} s");
    }
    assert_eq!(stream.reset(), Some(ErrorCode::Timeout));
}

#[test]
fn acknowledgements_are_shared_by_a_batch() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    let data = vec![1; 4 << 20];
    let before = (simulation.packets_up, simulation.packets_down);
    simulation.client.socket(handle).send_slice(&data).unwrap();
    let mut got = 0;
    simulation.run_until(MINUTES, |_| {
        got += stream.read().len();
        got == data.len()
    });
    let up = simulation.packets_up - before.0;
    let down = simulation.packets_down - before.1;
    assert!(down * 8 < up, "{down} acknowledgements for {up} segments");
}

#[test]
fn a_lone_segment_is_acknowledged_soon() {
    let mut simulation = Simulation::new(Conditions::clean(Duration::ZERO), 1);
    let (handle, _) = simulation.connect(v4());
    simulation.client.socket(handle).send_slice(b"a").unwrap();
    let sent = simulation.now();
    simulation.run_until(MINUTES, |sim| sim.client.socket(handle).send_queue() == 0);
    assert!(simulation.now() - sent <= Duration::from_millis(3));
}

#[test]
fn buffers_are_small_again_after_a_while() {
    let mut simulation = Simulation::new(Conditions::clean(ROUND_TRIP), 1);
    let (handle, stream) = simulation.connect(v4());
    let data = Random(6).bytes(8 << 20);
    let mut sent = 0;
    let mut got = Vec::new();
    simulation.run_until(MINUTES, |sim| {
        let socket = sim.client.socket(handle);
        if socket.can_send() && sent < data.len() {
            sent += socket.send_slice(&data[sent..]).unwrap();
        }
        got.extend(stream.read());
        got.len() == data.len()
    });
    simulation.run_for(Duration::from_secs(20));
    // A reader that stops now holds no more than a small window.
    stream.set_room(0);
    simulation
        .client
        .socket(handle)
        .send_slice(&data[..1 << 20])
        .unwrap();
    simulation.run_for(Duration::from_secs(20));
    let held = simulation.bench.stack.held_bytes();
    assert!(held <= 1 << 20, "{held} bytes held");
    stream.set_room(usize::MAX);
    let mut more = Vec::new();
    simulation.run_until(MINUTES, |_| {
        more.extend(stream.read());
        more.len() == 1 << 20
    });
    assert!(got == data && more == data[..1 << 20]);
}

/// Runs networks and applications of all kinds: the bytes always arrive, both sides end regularly,
/// and nothing is left behind.
#[test]
fn every_mixture_ends_well() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let conditions = Conditions {
            delay: Duration::from_micros(random.below(60_000) as u64),
            jitter: Duration::from_micros(random.below(3_000) as u64),
            loss: random.below(15),
            duplication: random.below(10),
        };
        let config = Config {
            mtu: [1280, 1420, 9000][random.below(3)],
            buffer_budget: [400 << 10, 64 << 20][random.below(2)],
            ..Config::default()
        };
        let mut simulation = Simulation::with_config(config, conditions, seed);
        simulation.batch = 1 + random.below(64);
        // Both ends are slow at times.
        simulation.tick = Some(Duration::from_millis(1));
        let (handle, stream) = simulation.connect([v4(), v6()][random.below(2)]);
        let size = random.below(600_000);
        let up = random.bytes(size);
        let size = random.below(600_000);
        let down = random.bytes(size);
        let (mut sent, mut written) = (0, 0);
        let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
        let (mut closed, mut finished) = (false, false);
        simulation.run_until(MINUTES * 10, |sim| {
            let socket = sim.client.socket(handle);
            if sent < up.len() && random.below(3) == 0 {
                let end = up.len().min(sent + random.below(100_000));
                sent += socket.send_slice(&up[sent..end]).unwrap();
            } else if sent == up.len() && !closed {
                socket.close();
                closed = true;
            }
            if random.below(3) == 0 {
                let mut buffer = vec![0; random.below(100_000)];
                let count = socket.recv_slice(&mut buffer).unwrap_or(0);
                got_down.extend_from_slice(&buffer[..count]);
            }
            match random.below(4) {
                0 => got_up.extend(stream.read()),
                1 => stream.set_room(1 + random.below(100_000)),
                _ => {}
            }
            if written < down.len() {
                let end = down.len().min(written + random.below(50_000));
                stream.write(&down[written..end]);
                written = end;
            } else if !finished {
                stream.close();
                finished = true;
            }
            stream.ended() && stream.waiting() == 0 && got_down.len() == down.len()
        });
        assert!(got_up == up && got_down == down, "seed {seed}");
        simulation.tick = None;
        simulation.run_for(Duration::from_secs(120));
        assert!(stream.finished(), "seed {seed}: {:?}", stream.reset());
        assert_eq!(simulation.bench.stack.flows(), 0, "seed {seed}");
        assert_eq!(simulation.bench.stack.held_bytes(), 0, "seed {seed}");
    }
}

/// Several segments of one flight are lost; each is sent again as soon as the client's
/// acknowledgements reveal it, although its window grows meanwhile.
#[test]
fn segments_lost_together_are_repaired_without_a_timeout() {
    let client: SocketAddr = "10.0.0.2:4000".parse().unwrap();
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &packets::syn(client, v4(), 0));
    let mut next = packets::read_tcp(&answers[0]).sequence.wrapping_add(1);
    let acknowledge = |to: u32, window: u16, sack: Option<(u32, u32)>| {
        packets::Tcp {
            source: client,
            destination: v4(),
            control: TcpControl::None,
            sequence: 1,
            acknowledges: Some(to),
            window,
            scale: None,
            payload: &[],
            sack,
        }
        .packet()
    };
    bench.packet(1, &acknowledge(next, 1000, None));
    bench.app.streams()[0].write(&[1; 200_000]);
    let mut flight = bench.settle();
    let ends = |flight: &[Vec<u8>]| -> Vec<u32> {
        let end = |packet: &Vec<u8>| {
            let segment = packets::read_tcp(packet);
            segment.sequence.wrapping_add(segment.payload.len() as u32)
        };
        flight.iter().map(end).collect()
    };
    while flight.len() < 16 {
        bench.wait(Duration::from_millis(10));
        next = *ends(&flight).last().unwrap();
        flight = bench.packet(1, &acknowledge(next, 1000, None));
    }
    let ends = ends(&flight);
    // The first, the sixth and the eleventh are lost.
    let gaps = [
        (next, ends[0], ends[4]),
        (ends[4], ends[5], ends[9]),
        (ends[9], ends[10], ends[15]),
    ];
    for ((start, end, passed), window) in gaps.into_iter().zip([1010, 1020, 1030]) {
        let answers = bench.packet(1, &acknowledge(start, window, Some((end, passed))));
        let again: Vec<u32> = answers
            .iter()
            .map(|packet| packets::read_tcp(packet).sequence)
            .filter(|sequence| sequence.wrapping_sub(ends[15]) as i32 <= -1)
            .collect();
        assert_eq!(again, [start], "sent again");
        // More of the same acknowledgements cause no further retransmission.
        for (more, window) in [(1, 1011), (2, 1012), (3, 1013), (4, 1014)] {
            let sack = Some((end, passed.wrapping_add(more)));
            for answer in bench.packet(1, &acknowledge(start, window, sack)) {
                assert_ne!(packets::read_tcp(&answer).sequence, start);
            }
        }
    }
}

/// The state of a flow's receiver: pieces, each with its end, in the order of their sequence.
#[derive(Default)]
struct Receiver {
    next: u32,
    later: std::collections::BTreeMap<u32, u32>,
}

impl Receiver {
    /// Takes a segment. Returns the acknowledgement, and the piece beyond a gap that this belongs
    /// to.
    fn take(&mut self, start: u32, end: u32) -> (u32, Option<(u32, u32)>) {
        if (end.wrapping_sub(self.next) as i32) > 0 {
            self.later.insert(start, end);
        }
        while let Some((&start, &end)) = self.later.iter().next()
            && (start.wrapping_sub(self.next) as i32) <= 0
        {
            self.later.remove(&start);
            if (end.wrapping_sub(self.next) as i32) > 0 {
                self.next = end;
            }
        }
        let mut last: Option<(u32, u32)> = None;
        for (&start, &end) in &self.later {
            last = match last {
                Some((first, before)) if before == start => Some((first, end)),
                _ => Some((start, end)),
            };
        }
        (self.next, last)
    }
}

#[test]
fn a_window_with_many_holes_is_whole_again_after_few_round_trips() {
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    let client: SocketAddr = "10.0.0.2:4000".parse().unwrap();
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &packets::syn(client, v4(), 0));
    let mut receiver = Receiver {
        next: packets::read_tcp(&answers[0]).sequence.wrapping_add(1),
        ..Receiver::default()
    };
    let first = receiver.next;
    let acknowledge = |to: u32, sack: Option<(u32, u32)>| {
        packets::Tcp {
            source: client,
            destination: v4(),
            control: TcpControl::None,
            sequence: 1,
            acknowledges: Some(to),
            window: 60_000,
            scale: None,
            payload: &[],
            sack,
        }
        .packet()
    };
    bench.packet(1, &acknowledge(first, None));
    const WRITTEN: u32 = 300_000;
    bench.app.streams()[0].write(&[1; WRITTEN as usize]);
    let mut flight = bench.settle();
    let (mut trips, mut holes) = (0, 0);
    while receiver.next.wrapping_sub(first) < WRITTEN {
        trips += 1;
        assert!(trips < 60, "{} bytes", receiver.next.wrapping_sub(first));
        bench.wait(ROUND_TRIP);
        let mut next_flight = Vec::new();
        for (number, packet) in flight.iter().enumerate() {
            let segment = packets::read_tcp(packet);
            let (start, length) = (segment.sequence, segment.payload.len() as u32);
            // Every second segment of the first large window is lost.
            if flight.len() > 30 && holes < 20 && number % 2 == 0 {
                holes += 1;
                continue;
            }
            let (to, sack) = receiver.take(start, start.wrapping_add(length));
            next_flight.extend(bench.packet(1, &acknowledge(to, sack)));
        }
        flight = next_flight;
        if flight.is_empty() {
            flight = bench.settle();
        }
    }
    assert_eq!(holes, 20);
    // The round trips that fill the window, five that repair it, and those of the rest; with one
    // for each hole they would be 37.
    assert!(trips < 25, "{trips} round trips");
}
