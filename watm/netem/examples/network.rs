//! Sends packets through a network, in virtual time: `network WORDS COUNT GAP BYTES`, with the time between
//! packets in microseconds and the bytes of their UDP payload. Prints a line for each arrival: the number
//! of the packet, its delay in nanoseconds, and 1 if its payload was changed. The tests compare them with
//! those of tc-netem(8).

use std::env;

use watm_netem::{Direction, Netem, Uploader, parse};

const PEER: (u32, &str) = (1, "peer");
/// The headers of IPv4 and UDP.
const HEADERS: usize = 28;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [words, count, gap, bytes] = arguments.as_slice() else {
        panic!("usage: network WORDS COUNT GAP BYTES");
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (count, gap, bytes) = (number(count), number(gap) * 1000, number(bytes) as usize);
    let rules = parse(words, Uploader::Peer).unwrap_or_else(|error| panic!("{words}: {error:?}"));
    let mut netem = Netem::new(7);
    netem.set_rules(&rules);
    for index in 0..count {
        let now = index * gap;
        print_until(&mut netem, now, gap);
        let packet = packet(index, bytes);
        if !netem.take(Direction::FromPeer, PEER, &packet, now) {
            print(now, gap, &packet);
        }
    }
    print_until(&mut netem, u64::MAX, gap);
}

/// Prints the packets that arrive up to this time.
fn print_until(netem: &mut Netem, end: u64, gap: u64) {
    while let Some(due) = netem.deadline().filter(|due| *due <= end) {
        for arrived in netem.arrived(due) {
            print(due, gap, &arrived.packet);
        }
    }
}

/// Prints a packet. Its number is in its source port, which no network changes.
fn print(now: u64, gap: u64, packet: &[u8]) {
    let number = u16::from_be_bytes([packet[20], packet[21]]);
    let changed = packet[HEADERS..].iter().any(|byte| *byte != 0);
    let delay = now - u64::from(number) * gap;
    println!("{number} {delay} {}", u8::from(changed));
}

/// A UDP packet over IPv4 whose payload is zeros.
fn packet(number: u64, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADERS + bytes];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    let number = u16::try_from(number).expect("a port");
    packet[20..22].copy_from_slice(&number.to_be_bytes());
    packet
}
