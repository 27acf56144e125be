//! Bytes pass unchanged, and are not copied on the way.

use watm_plain::{Copy, Plain};
use watm_stream::{Buffer, Codec, StreamTransport};

#[test]
fn bytes_pass_unchanged_both_ways() {
    let mut codec = Plain::configure(b"").unwrap().accept(None).unwrap();
    assert!(codec.established());
    let (mut from, mut application, mut network) = Default::default();
    for part in [&b"one"[..], b"two"] {
        Buffer::extend(&mut from, part);
        codec
            .inward(&mut from, &mut application, &mut network)
            .unwrap();
        assert!(from.is_empty());
    }
    assert_eq!(application.bytes(), b"onetwo");
    assert!(network.is_empty());

    codec.outward(&mut application, &mut network).unwrap();
    assert_eq!(network.bytes(), b"onetwo");
}

#[test]
fn an_empty_buffer_takes_over_the_memory_of_a_full_one() {
    let (mut from, mut network) = <(Buffer, Buffer)>::default();
    from.extend(&[7; 1000]);
    let address = from.bytes().as_ptr();
    Copy.outward(&mut from, &mut network).unwrap();
    assert_eq!(network.bytes().as_ptr(), address);
}
