//! The byte queue of a stream flow, one for each direction. Used by `stream`.

use std::collections::VecDeque;

use super::KEPT_CAPACITY;

/// A queue of bytes that uses only the memory of its contents: it keeps them in chunks, and an
/// empty queue holds none.
#[derive(Default)]
pub struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are already taken.
    taken: usize,
    len: usize,
    /// The capacity of the chunks, in bytes.
    room: usize,
}

/// Bytes that were taken from a queue.
#[derive(Default)]
pub struct Piece {
    chunks: Vec<Vec<u8>>,
    /// Bytes of the first chunk that are not part of it.
    skip: usize,
    len: usize,
}

impl Piece {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes as one vector. A single whole chunk is not copied.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.skip == 0 && self.chunks.len() <= 1 {
            return self.chunks.pop().unwrap_or_default();
        }
        let mut out = Vec::with_capacity(self.len);
        let mut skip = self.skip;
        for chunk in self.chunks {
            out.extend_from_slice(&chunk[skip..]);
            skip = 0;
        }
        out
    }
}

/// Small writes are gathered in chunks of up to this size, in bytes, so that writing a byte at a
/// time does not cost an allocation each.
const GATHER: usize = 16 << 10;

/// The capacity that a chunk grows to with the second write in it: most flows never hold more.
const FEW: usize = 4096;

impl Chunks {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory that it uses, in bytes.
    pub fn memory(&self) -> usize {
        self.room + self.chunks.capacity() * size_of::<Vec<u8>>()
    }

    pub fn push(&mut self, data: &[u8]) {
        if !self.gather(data) {
            self.append(data.to_vec());
        }
    }

    pub fn push_vec(&mut self, data: Vec<u8>) {
        if !self.gather(&data) {
            self.append(data);
        }
    }

    /// Takes up to `max` bytes. Cheap, so that it can run under a lock, unlike [`Piece::into_vec`].
    pub fn take(&mut self, max: usize) -> Piece {
        let mut piece = Piece {
            skip: self.taken,
            ..Piece::default()
        };
        while piece.len < max
            && let Some(first) = self.chunks.front()
        {
            let rest = &first[self.taken..];
            let wanted = max - piece.len;
            if rest.len() <= wanted {
                piece.len += rest.len();
                self.taken = 0;
                self.room -= first.capacity();
                piece.chunks.extend(self.chunks.pop_front());
            } else {
                if piece.chunks.is_empty() {
                    piece.skip = 0;
                }
                piece.len += wanted;
                piece.chunks.push(rest[..wanted].to_vec());
                self.taken += wanted;
            }
        }
        self.len -= piece.len;
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CAPACITY {
            self.chunks = VecDeque::new();
        }
        piece
    }

    /// Moves as many bytes as fit into `buffer`, and returns their number.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut count = 0;
        while count < buffer.len() && !self.is_empty() {
            let rest = self.front();
            let step = rest.len().min(buffer.len() - count);
            buffer[count..count + step].copy_from_slice(&rest[..step]);
            count += step;
            self.consume(step);
        }
        count
    }

    /// Returns the first bytes that are contiguous; empty if the queue is.
    pub fn front(&self) -> &[u8] {
        let first = self.chunks.front();
        first.map_or(&[], |first| &first[self.taken..])
    }

    /// Removes `count` bytes of [`front`](Chunks::front).
    pub fn consume(&mut self, count: usize) {
        self.taken += count;
        self.len -= count;
        let done = self.chunks.pop_front_if(|first| first.len() == self.taken);
        if let Some(done) = done {
            self.room -= done.capacity();
            self.taken = 0;
        }
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CAPACITY {
            self.chunks = VecDeque::new();
        }
    }

    pub fn clear(&mut self) {
        *self = Chunks::default();
    }

    fn gather(&mut self, data: &[u8]) -> bool {
        if data.is_empty() {
            return true;
        }
        match self.chunks.back_mut() {
            Some(last) if last.len() + data.len() <= GATHER => {
                let grown = last.len() + data.len();
                if last.capacity() < grown {
                    let capacity = if grown <= FEW { FEW } else { GATHER };
                    self.room -= last.capacity();
                    last.reserve_exact(capacity - last.len());
                    self.room += last.capacity();
                }
                last.extend_from_slice(data);
                self.len += data.len();
                true
            }
            _ => false,
        }
    }

    fn append(&mut self, data: Vec<u8>) {
        self.len += data.len();
        self.room += data.capacity();
        self.chunks.push_back(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_whatever_the_sizes() {
        let mut queue = Chunks::default();
        let mut expected = Vec::new();
        let mut got = Vec::new();
        let mut next = 0u8;
        for step in 0..2000usize {
            let data: Vec<u8> = (0..(step * 7919) % 6000)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            expected.extend_from_slice(&data);
            if step % 2 == 0 {
                queue.push(&data);
            } else {
                queue.push_vec(data);
            }
            let wanted = (step * 104_729) % 7000;
            let taken = if step % 3 == 0 {
                let mut buffer = vec![0; wanted];
                let count = queue.read(&mut buffer);
                buffer.truncate(count);
                buffer
            } else {
                queue.take(wanted).into_vec()
            };
            assert!(taken.len() <= wanted);
            got.extend_from_slice(&taken);
            assert_eq!(queue.len(), expected.len() - got.len());
            let room: usize = queue.chunks.iter().map(Vec::capacity).sum();
            assert_eq!(queue.room, room);
        }
        got.extend_from_slice(&queue.take(usize::MAX).into_vec());
        assert!(queue.is_empty());
        assert!(got == expected);
    }

    #[test]
    fn an_empty_queue_gives_nothing() {
        let mut queue = Chunks::default();
        queue.push(b"");
        assert!(queue.is_empty());
        assert!(queue.take(10).into_vec().is_empty());
    }

    #[test]
    fn single_bytes_are_gathered() {
        let mut queue = Chunks::default();
        for _ in 0..10_000 {
            queue.push(b"x");
        }
        assert!(queue.chunks.len() <= 10_000 / GATHER + 1);
    }
}
