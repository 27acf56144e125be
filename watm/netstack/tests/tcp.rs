//! TCP between a real client and the stack.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::socket::tcp::State;
use support::{Conditions, Random, Simulation};
use watm_core::ErrorCode;

const ROUND_TRIP: Duration = Duration::from_millis(100);
const MINUTES: Duration = Duration::from_secs(600);

fn v4() -> SocketAddr {
    "93.184.216.34:80".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[2606:2800:220:1::1]:443".parse().unwrap()
}

/// Send `data` both ways at once, compare, and close both sides.
fn exchange(simulation: &mut Simulation, destination: SocketAddr, size: usize) {
    let (handle, stream) = simulation.connect(destination);
    let up = Random(1).bytes(size);
    let down = Random(2).bytes(size);
    stream.write(&down);
    stream.close();
    let (mut sent, mut got_up, mut got_down) = (0, Vec::new(), Vec::new());
    simulation.run_until(MINUTES, |sim| {
        let socket = sim.client.socket(handle);
        if socket.can_send() && sent < up.len() {
            sent += socket.send_slice(&up[sent..]).unwrap();
            if sent == up.len() {
                socket.close();
            }
        }
        while socket.can_recv() {
            let mut buffer = vec![0; 65536];
            let count = socket.recv_slice(&mut buffer).unwrap();
            got_down.extend_from_slice(&buffer[..count]);
        }
        got_up.extend(stream.read());
        stream.gone() && got_down.len() == down.len()
    });
    assert!(got_up == up, "the application got something else");
    assert!(got_down == down, "the client got something else");
    assert!(stream.ended() && stream.finished());
    assert_eq!(stream.reset(), None);
    simulation.run_for(Duration::from_secs(15));
    assert_eq!(simulation.bench.stack.flows(), 0);
    assert_eq!(simulation.bench.stack.held_bytes(), 0);
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
