//! smoltcp's ring over elastic memory, compared with a model under random operations.

mod support;

use std::collections::VecDeque;
use std::rc::Rc;

use managed::{Elastic, Lender, Pool};
use smoltcp::storage::RingBuffer;
use support::Random;

const SMALL: usize = 16;
const LARGE: usize = 256;

fn ring(pool: &Rc<Pool<u8>>, length: usize) -> (RingBuffer<'static, u8>, managed::Handle) {
    let (memory, handle) = Elastic::new(length, Rc::clone(pool) as Rc<dyn Lender<u8>>);
    (RingBuffer::new(memory), handle)
}

/// Uses it as a send buffer: enqueue, read anywhere, drop acknowledged bytes.
#[test]
fn a_send_ring_keeps_its_bytes_while_it_grows_and_lets_go() {
    let pool = Rc::new(Pool::new(1024));
    let (mut grown, mut released, mut shrunk) = (0, 0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut ring, handle) = ring(&pool, SMALL);
        let mut model = VecDeque::new();
        for _ in 0..300 {
            match random.below(6) {
                0 | 1 => {
                    let size = random.below(ring.capacity() + 4);
                    let data = random.bytes(size);
                    let count = ring.enqueue_slice(&data);
                    assert_eq!(count, data.len().min(ring.capacity() - model.len()));
                    model.extend(&data[..count]);
                }
                2 | 3 => {
                    let count = random.below(model.len() + 1);
                    ring.dequeue_allocated(count);
                    model.drain(..count);
                }
                4 if ring.capacity() < LARGE => {
                    let touched = handle.grow(ring.capacity() * 2, || {
                        let _ = ring.enqueue_many_with(|_| (0, ()));
                    });
                    assert!(touched);
                    grown += 1;
                }
                _ if model.is_empty() => {
                    let to = if random.below(2) == 0 {
                        SMALL
                    } else {
                        handle.len()
                    };
                    shrunk += usize::from(to < handle.len());
                    assert!(handle.release_write(to, || {
                        let _ = ring.enqueue_many_with(|_| (0, ()));
                    }));
                    assert_eq!((handle.held(), handle.len()), (0, to));
                    released += 1;
                }
                _ => {}
            }
            assert_eq!(ring.len(), model.len());
            let offset = random.below(model.len() + 1);
            let mut seen = vec![0; model.len() - offset];
            assert_eq!(ring.read_allocated(offset, &mut seen), seen.len());
            assert!(seen.iter().eq(model.iter().skip(offset)));
        }
        drop(ring);
        assert_eq!(pool.lent(), 0);
        assert!(pool.kept() <= 1024);
    }
    assert!(grown > 100 && released > 100 && shrunk > 100);
}

/// Uses it as a receive buffer: bytes are written beyond the end, in any order, and enqueued when
/// the gap before them is filled.
#[test]
fn a_receive_ring_keeps_bytes_that_came_early() {
    let pool = Rc::new(Pool::new(1024));
    let (mut grown, mut released, mut shrunk) = (0, 0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut ring, handle) = ring(&pool, SMALL);
        // The enqueued bytes, and the bytes beyond: `None` is a gap.
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut beyond: VecDeque<Option<u8>> = VecDeque::new();
        for _ in 0..300 {
            match random.below(6) {
                0 | 1 => {
                    let room = ring.capacity() - model.len();
                    let offset = random.below(room + 1);
                    let size = random.below(room - offset + 1);
                    let data = random.bytes(size);
                    assert_eq!(ring.write_unallocated(offset, &data), data.len());
                    if beyond.len() < offset + data.len() {
                        beyond.resize(offset + data.len(), None);
                    }
                    for (at, byte) in data.into_iter().enumerate() {
                        beyond[offset + at] = Some(byte);
                    }
                    let contiguous = beyond.iter().take_while(|byte| byte.is_some()).count();
                    ring.enqueue_unallocated(contiguous);
                    model.extend(beyond.drain(..contiguous).flatten());
                }
                2 | 3 => {
                    let mut seen = vec![0; random.below(model.len() + 1)];
                    assert_eq!(ring.dequeue_slice(&mut seen), seen.len());
                    assert!(model.drain(..seen.len()).eq(seen));
                }
                4 if ring.capacity() < LARGE => {
                    assert!(handle.grow(ring.capacity() * 2, || {
                        let _ = ring.dequeue_many_with(|_| (0, ()));
                    }));
                    grown += 1;
                }
                _ if model.is_empty() && beyond.iter().all(Option::is_none) => {
                    let before = handle.len();
                    let to = if random.below(2) == 0 { SMALL } else { before };
                    assert!(handle.release_read(to, || {
                        let _ = ring.dequeue_many_with(|_| (0, ()));
                    }));
                    assert_eq!(handle.held(), 0);
                    // The position may lie too far for the smaller size.
                    assert!(handle.len() == to || handle.len() == before);
                    shrunk += usize::from(handle.len() < before);
                    beyond.truncate(handle.len());
                    released += 1;
                }
                _ => {}
            }
            assert_eq!(ring.len(), model.len());
            let mut seen = vec![0; model.len()];
            assert_eq!(ring.read_allocated(0, &mut seen), seen.len());
            assert!(model.iter().eq(&seen));
        }
    }
    assert!(grown > 100 && released > 100 && shrunk > 10);
}

/// Takes the last byte as the stack does: this access releases the memory too.
#[test]
fn taking_the_last_byte_can_release() {
    let pool = Rc::new(Pool::new(0));
    // Unwrapped, and wrapped around the end.
    for start in [0, 3, SMALL - 1] {
        let (mut ring, handle) = ring(&pool, SMALL);
        assert_eq!(ring.enqueue_slice(&[0; SMALL][..start]), start);
        ring.dequeue_allocated(start);
        ring.enqueue_unallocated(0);
        assert_eq!(ring.write_unallocated(0, b"ab"), 2);
        ring.enqueue_unallocated(2);
        assert_eq!(ring.dequeue_many(1), b"a");
        let mut last = [0];
        assert!(handle.release_read(SMALL, || {
            assert_eq!(ring.dequeue_slice(&mut last), 1);
        }));
        assert_eq!((&last, handle.held(), pool.lent()), (b"b", 0, 0));
    }
}

#[test]
fn an_order_does_not_outlast_its_touch() {
    let pool = Rc::new(Pool::new(0));
    let (mut ring, handle) = ring(&pool, SMALL);
    assert!(!handle.grow(2 * SMALL, || {}));
    assert_eq!(ring.enqueue_slice(b"abc"), 3);
    assert_eq!(ring.capacity(), SMALL);
    assert!(!handle.release_read(SMALL, || {
        let _ = ring.dequeue_many_with(|_| (0, ()));
    }));
    assert_eq!(ring.get_allocated(0, 3), b"abc");
    assert!(!handle.set_unused_len(8), "it is in use");
    assert_eq!(pool.lent(), SMALL);
}
