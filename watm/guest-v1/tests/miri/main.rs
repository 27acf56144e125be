//! The shell in Miri, which detects unsound uses of memory: in all calls to a host and in all its
//! answers, whatever they are.
//!
//! WASI's pointers have 32 bits, so that the machine must have them too: `make prove-miri`.
#![cfg(all(miri, target_pointer_width = "32"))]

mod host;

use std::collections::VecDeque;

use wasip1::Errno;
use watm_guest_v1::shell::Shell;
use watm_guest_v1::{Carrier, Hosted, Relayed};
use watm_plain::Plain;
use watm_stream::Streams;

use host::{Stream, World, world};

/// A transport in each of the two shapes that a shell has.
type Codec = Relayed<Plain>;
type Whole = Hosted<Streams<Plain>>;

const APPLICATION: i32 = 7;
const NETWORK: i32 = 8;
const CONTROL: i32 = 9;

const REMOTE: &[u8] = b"remote = \"127.0.0.1:9\"\n";

const DONE: i32 = -(wasip1::ERRNO_PIPE.raw() as i32);
const CANCELLED: i32 = -(wasip1::ERRNO_CANCELED.raw() as i32);

fn reads(pieces: &[Result<&[u8], Errno>]) -> VecDeque<Result<Vec<u8>, Errno>> {
    pieces
        .iter()
        .map(|piece| piece.map(<[u8]>::to_vec))
        .collect()
}

/// A stream with these reads and then the end.
fn stream(pieces: &[Result<&[u8], Errno>]) -> Stream {
    let mut reads = reads(pieces);
    reads.push_back(Ok(Vec::new()));
    Stream {
        reads,
        ..Stream::default()
    }
}

fn begin(config: &'static [u8], application: Stream, network: Stream) {
    world(|world| {
        *world = World {
            folders: vec![b"/elsewhere", b"/conf\0"],
            config: Some(reads(&[Ok(config)])),
            dialled: NETWORK,
            accepted: NETWORK,
            ..World::default()
        };
        world.streams.insert(APPLICATION as u32, application);
        world.streams.insert(NETWORK as u32, network);
    });
}

fn written(fd: i32) -> Vec<u8> {
    world(|world| world.streams[&(fd as u32)].written.clone())
}

fn bytes_pass<C: Carrier>(role: impl Fn(&Shell<C>) -> i32) {
    let interrupted = [
        Ok(b"hello".as_slice()),
        Err(wasip1::ERRNO_INTR),
        Err(wasip1::ERRNO_AGAIN),
        Ok(b", world"),
    ];
    // A transport of the other shape has nothing left to do when the network ends first.
    let mut answers = vec![Err(wasip1::ERRNO_AGAIN); 24];
    answers.insert(0, Ok([b'n'; 5000].as_slice()));
    begin(REMOTE, stream(&interrupted), stream(&answers));
    world(|world| {
        let network = world.streams.get_mut(&(NETWORK as u32));
        network.expect("made").takes =
            VecDeque::from([Err(wasip1::ERRNO_INTR), Ok(3), Err(wasip1::ERRNO_AGAIN)]);
    });
    let shell = Shell::<C>::new();
    assert_eq!(shell.init(), 0);
    assert_eq!(role(&shell), NETWORK);
    assert_eq!(shell.control(CONTROL), 0);
    let shape = std::any::type_name::<C>();
    assert_eq!(shell.start(), DONE, "{shape}");
    assert_eq!(written(NETWORK), b"hello, world");
    assert_eq!(written(APPLICATION), [b'n'; 5000]);
}

#[test]
fn bytes_pass_both_ways_in_each_role() {
    bytes_pass::<Codec>(|shell| shell.accept(APPLICATION));
    bytes_pass::<Codec>(|shell| shell.dial(APPLICATION));
    bytes_pass::<Whole>(|shell| shell.dial(APPLICATION));
}

/// Stream transports ask for the address of the client, which WATER does not tell.
#[test]
fn a_connection_without_an_address_is_refused() {
    begin(REMOTE, stream(&[]), stream(&[]));
    let shell = Shell::<Whole>::new();
    assert_eq!(shell.init(), 0);
    assert_eq!(shell.accept(APPLICATION), NETWORK);
    assert_eq!(shell.start(), -i32::from(wasip1::ERRNO_CONNRESET.raw()));
}

fn remote_is_dialled<C: Carrier>() {
    bytes_pass::<C>(|shell| shell.dial_fixed(APPLICATION));
    assert_eq!(world(|world| world.address.clone()), "127.0.0.1:9");
}

#[test]
fn the_address_of_the_configuration_is_dialled() {
    remote_is_dialled::<Codec>();
    remote_is_dialled::<Whole>();
}

fn is_cancelled<C: Carrier>() {
    begin(REMOTE, Stream::default(), Stream::default());
    world(|world| {
        world.cancelled = Some(CONTROL as u32);
        world.patience = 2;
        let application = world.streams.get_mut(&(APPLICATION as u32));
        application.expect("made").reads = reads(&[Ok(b"last words")]);
    });
    let shell = Shell::<C>::new();
    assert_eq!(shell.init(), 0);
    assert_eq!(shell.dial(APPLICATION), NETWORK);
    assert_eq!(shell.control(CONTROL), 0);
    assert_eq!(shell.start(), CANCELLED);
    assert_eq!(written(NETWORK), b"last words");
}

#[test]
fn a_connection_that_is_cancelled_sends_what_was_written() {
    is_cancelled::<Codec>();
    is_cancelled::<Whole>();
}

fn survives_counts<C: Carrier>() {
    begin(
        b"",
        stream(&[Ok(&[b'a'; 3000]), Ok(&[b'a'; 60_000])]),
        stream(&[Ok(b"short")]),
    );
    let shell = Shell::<C>::new();
    assert_eq!(shell.init(), 0);
    assert_eq!(shell.accept(APPLICATION), NETWORK);
    world(|world| world.lie = 1 << 20);
    assert!(shell.start() < 0);
}

/// The memory to write to is zero in a module: a host that lies about the length of a read causes
/// no unsoundness there, although Miri would report it.
#[test]
fn a_host_that_counts_more_events_and_writes_than_there_are_harms_nothing() {
    survives_counts::<Codec>();
    survives_counts::<Whole>();
}

fn survives_anything<C: Carrier>(seed: u64) {
    begin(REMOTE, Stream::default(), Stream::default());
    let shell = Shell::<C>::new();
    assert_eq!(shell.init(), 0);
    world(|world| {
        world.seed = Some(seed);
        world.cancelled = Some(CONTROL as u32);
        world.patience = 40;
    });
    let number = match seed % 3 {
        0 => shell.accept(APPLICATION),
        1 => shell.dial(APPLICATION),
        _ => shell.associate(),
    };
    assert!(number == NETWORK || number <= 0, "{number}");
    assert_eq!(shell.control(CONTROL), 0);
    let ended = shell.start();
    assert!((-76..0).contains(&ended), "seed {seed}: {ended}");
    assert!(shell.start() < 0);
}

#[test]
fn a_host_may_answer_anything() {
    for seed in 0..6 {
        survives_anything::<Codec>(seed);
        survives_anything::<Whole>(seed);
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    begin(b"nonsense", Stream::default(), Stream::default());
    let shell = Shell::<Codec>::new();
    assert_eq!(
        shell.accept(APPLICATION),
        -i32::from(wasip1::ERRNO_INVAL.raw())
    );
    assert_eq!(shell.start(), -i32::from(wasip1::ERRNO_NOTCONN.raw()));
    assert_eq!(shell.init(), -i32::from(wasip1::ERRNO_INVAL.raw()));
    assert_eq!(shell.control(-5), -5);
}
