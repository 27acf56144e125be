//! The blocks that are reversed together; reversing twice changes nothing.

use watm_reverse::{BLOCK, Reverse};
use watm_stream::{Buffer, Codec, StreamTransport};

fn outward(message: &[u8]) -> Vec<u8> {
    let mut codec = Reverse::configure(b"").unwrap().dial(None).unwrap();
    let (mut from, mut network) = <(Buffer, Buffer)>::default();
    from.extend(message);
    codec.outward(&mut from, &mut network).unwrap();
    assert!(from.is_empty());
    network.bytes().to_vec()
}

fn inward(message: &[u8]) -> Vec<u8> {
    let mut codec = Reverse::configure(b"").unwrap().accept(None).unwrap();
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    from.extend(message);
    codec
        .inward(&mut from, &mut application, &mut network)
        .unwrap();
    assert!(from.is_empty() && network.is_empty());
    application.bytes().to_vec()
}

#[test]
fn a_message_of_up_to_a_block_is_reversed_whole() {
    assert_eq!(outward(b"hello"), b"olleh");
    assert_eq!(inward(b"olleh"), b"hello");
    let message: Vec<_> = (0..BLOCK).map(|i| (i * 7) as u8).collect();
    let reversed: Vec<_> = message.iter().rev().copied().collect();
    assert_eq!(outward(&message), reversed);
    assert_eq!(inward(&message), reversed);
}

#[test]
fn a_longer_one_is_reversed_in_blocks() {
    let message: Vec<_> = (0..2 * BLOCK + 3).map(|i| (i / 5) as u8).collect();
    let reversed = outward(&message);
    assert_eq!(reversed[0], message[BLOCK - 1]);
    assert_eq!(reversed[BLOCK], message[2 * BLOCK - 1]);
    assert_eq!(reversed.last(), Some(&message[2 * BLOCK]));
    assert_eq!(inward(&reversed), message);
}
