//! The example `rough_path`: the paths of the tests in `rough_paths.rs`, for the kernel's TCP,
//! which `tests/interop/test_kernel.py` measures. PATH and SHAPE are names in `path.rs`.
//!
//! `rough_path case PATH SHAPE SEED` prints the case as JSON: the writes with their times, and the
//! time of an ideal sender and of the stack, all in seconds.
//!
//! `rough_path relay PATH SHAPE SEED` carries packets between two TUN devices, its standard input
//! on the sender's side and its standard output, until it is terminated.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the relay delays packets of this machine's kernel, by its clock"
)]

#[path = "mod.rs"]
mod support;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use support::path::{Case, PATHS, SHAPES, Way};
use support::transfer::transfer;

/// The size of a buffer in bytes, more than a packet of a TUN device.
const LONGEST: usize = 65536;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [command, path, shape, seed] = &arguments[..] else {
        usage();
    };
    let path = PATHS.iter().position(|(name, _)| name == path);
    let shape = SHAPES.iter().position(|(name, _)| name == shape);
    let (Some(path), Some(shape), Ok(seed)) = (path, shape, seed.parse()) else {
        usage();
    };
    let case = Case::new(path, shape, seed);
    match command.as_str() {
        "case" => describe(&case),
        "relay" => relay(&case)?,
        _ => usage(),
    }
    Ok(())
}

fn usage() -> ! {
    eprintln!("usage: rough_path case|relay PATH SHAPE SEED");
    exit(2);
}

fn describe(case: &Case) {
    let writes = case.writes.iter();
    let writes: Vec<String> = writes
        .map(|(at, bytes)| format!("[{}, {bytes}]", at.as_secs_f64()))
        .collect();
    let stack = transfer(case).expect("the tests check that everything arrives");
    println!(
        r#"{{"writes": [{}], "ideal": {}, "stack": {}}}"#,
        writes.join(", "),
        case.ideal().as_secs_f64(),
        stack.as_secs_f64(),
    );
}

/// A packet with its time of arrival, and its number.
type Delayed = (Duration, u64, Vec<u8>);

/// The packets on their way in one direction.
#[derive(Default)]
struct Queue {
    packets: Mutex<BinaryHeap<Reverse<Delayed>>>,
    changed: Condvar,
}

fn relay(case: &Case) -> io::Result<()> {
    let sender = io::stdin().as_fd().try_clone_to_owned()?;
    let receiver = io::stdout().as_fd().try_clone_to_owned()?;
    let (there, back) = case.ways();
    // The connection begins with the first packet.
    let begun = Arc::new(OnceLock::new());
    let ways = [
        (sender.try_clone()?, receiver.try_clone()?, there),
        (receiver, sender, back),
    ];
    let threads = ways.map(|(from, to, way)| {
        let queue = Arc::new(Queue::default());
        let (filled, clock) = (Arc::clone(&queue), Arc::clone(&begun));
        thread::spawn(move || fill(from, way, &filled, &clock));
        let clock = Arc::clone(&begun);
        thread::spawn(move || drain(to, &queue, &clock))
    });
    for thread in threads {
        thread.join().expect("no thread panics")?;
    }
    Ok(())
}

/// Reads packets and gives each its time of arrival.
fn fill(from: OwnedFd, mut way: Way, queue: &Queue, begun: &OnceLock<Instant>) -> io::Result<()> {
    let mut from = File::from(from);
    let mut buffer = vec![0; LONGEST];
    let mut number = 0;
    loop {
        let length = from.read(&mut buffer)?;
        let packet = &buffer[..length];
        // The kernel also sends IPv6 packets on its own.
        if packet.first().is_none_or(|first| first >> 4 != 4) {
            continue;
        }
        let now = begun.get_or_init(Instant::now).elapsed();
        let mut packets = queue.packets.lock().expect("no thread panics");
        for at in way.arrivals(now, length) {
            number += 1;
            packets.push(Reverse((at, number, packet.to_vec())));
        }
        queue.changed.notify_one();
    }
}

/// Writes packets when they arrive.
fn drain(to: OwnedFd, queue: &Queue, begun: &OnceLock<Instant>) -> io::Result<()> {
    let mut to = File::from(to);
    let mut packets = queue.packets.lock().expect("no thread panics");
    loop {
        let now = begun.get().map_or(Duration::ZERO, Instant::elapsed);
        let Some(Reverse((at, ..))) = packets.peek() else {
            packets = queue.changed.wait(packets).expect("no thread panics");
            continue;
        };
        if *at > now {
            let left = *at - now;
            let waited = queue.changed.wait_timeout(packets, left);
            packets = waited.expect("no thread panics").0;
            continue;
        }
        if let Some(Reverse((.., packet))) = packets.pop() {
            to.write_all(&packet)?;
        }
    }
}
