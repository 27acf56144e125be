//! Memory for the bytes of connections: chunks that a pool lends, and buffers made of them.
//!
//! A buffer grows and shrinks by chunks, in place, and its bytes never move. It holds no chunk
//! while it is empty.

use std::collections::VecDeque;

/// The bytes of a chunk: one segment of the largest size.
pub(crate) const CHUNK: usize = 64 << 10;

type Chunk = Box<[u8; CHUNK]>;

/// Lends chunks, and keeps some of the returned ones for reuse.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Vec<Chunk>,
    /// The most chunks kept.
    keep: usize,
    lent: usize,
}

impl Pool {
    /// Makes a pool that keeps at most `keep` unused bytes.
    pub(crate) fn new(keep: usize) -> Self {
        Pool {
            idle: Vec::new(),
            keep: keep / CHUNK,
            lent: 0,
        }
    }

    /// The bytes lent now.
    pub(crate) fn lent(&self) -> usize {
        self.lent * CHUNK
    }

    fn lend(&mut self) -> Chunk {
        self.lent += 1;
        self.idle.pop().unwrap_or_else(|| {
            let bytes = vec![0; CHUNK].into_boxed_slice();
            bytes.try_into().expect("it has the length of a chunk")
        })
    }

    fn take_back(&mut self, mut chunk: Chunk) {
        if cfg!(debug_assertions) {
            // A buffer that returns a chunk too early must not find its bytes by luck.
            chunk.fill(0);
        }
        self.lent -= 1;
        if self.idle.len() < self.keep {
            self.idle.push(chunk);
        }
    }
}

/// Bytes in chunks. The owner knows which of them have content; positions count from the first byte
/// that was not [skipped](Buffer::skip). Before it is dropped it must be [cleared](Buffer::clear).
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    chunks: VecDeque<Option<Chunk>>,
    /// The offset of position 0 in the first chunk.
    start: usize,
}

impl Buffer {
    /// The bytes of the chunks that it holds.
    pub(crate) fn held(&self) -> usize {
        self.chunks.iter().flatten().count() * CHUNK
    }

    /// The bytes of the chunks that a write of `len` bytes at `at` would have to borrow.
    pub(crate) fn lacks(&self, at: usize, len: usize) -> usize {
        let first = (self.start + at) / CHUNK;
        let end = (self.start + at + len).div_ceil(CHUNK);
        let there = |index: &usize| self.chunks.get(*index).is_some_and(Option::is_some);
        (first..end).filter(|index| !there(index)).count() * CHUNK
    }

    /// The bytes from `at` to the end of the last chunk.
    pub(crate) fn room_after(&self, at: usize) -> usize {
        (self.chunks.len() * CHUNK).saturating_sub(self.start + at)
    }

    /// Copies `data` to the positions from `at` on.
    pub(crate) fn write(&mut self, at: usize, mut data: &[u8], pool: &mut Pool) {
        let mut at = self.start + at;
        while !data.is_empty() {
            let index = at / CHUNK;
            if self.chunks.len() <= index {
                self.chunks.resize_with(index + 1, || None);
            }
            let chunk = self.chunks[index].get_or_insert_with(|| pool.lend());
            let room = &mut chunk[at % CHUNK..];
            let count = room.len().min(data.len());
            room[..count].copy_from_slice(&data[..count]);
            data = &data[count..];
            at += count;
        }
    }

    /// At most `most` contiguous bytes from `at` on, which must have been written. Fewer only at
    /// the end of a chunk.
    pub(crate) fn piece(&self, at: usize, most: usize) -> &[u8] {
        let at = self.start + at;
        match self.chunks.get(at / CHUNK) {
            Some(Some(chunk)) => {
                let rest = &chunk[at % CHUNK..];
                &rest[..rest.len().min(most)]
            }
            _ => &[],
        }
    }

    /// The `len` bytes from `at` on, which must have been written, in contiguous pieces.
    pub(crate) fn pieces(&self, at: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let (mut at, mut left) = (at, len);
        std::iter::from_fn(move || {
            let piece = self.piece(at, left);
            at += piece.len();
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Drops the first `bytes` bytes.
    pub(crate) fn skip(&mut self, bytes: usize, pool: &mut Pool) {
        self.start += bytes;
        while self.start >= CHUNK {
            self.start -= CHUNK;
            if let Some(chunk) = self.chunks.pop_front().flatten() {
                pool.take_back(chunk);
            }
        }
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        for chunk in std::mem::take(&mut self.chunks).into_iter().flatten() {
            pool.take_back(chunk);
        }
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(start: usize, len: usize) -> Vec<u8> {
        (start..start + len).map(|at| (at % 251) as u8).collect()
    }

    fn read(buffer: &Buffer, at: usize, len: usize) -> Vec<u8> {
        buffer.pieces(at, len).flatten().copied().collect()
    }

    #[test]
    fn bytes_stay_where_they_are_while_chunks_come_and_go() {
        let mut pool = Pool::new(CHUNK);
        let mut buffer = Buffer::default();
        assert_eq!((buffer.held(), buffer.lacks(0, 1)), (0, CHUNK));
        buffer.write(0, &pattern(0, 100_000), &mut pool);
        assert_eq!((buffer.held(), buffer.lacks(0, 100_000)), (2 * CHUNK, 0));
        buffer.skip(70_000, &mut pool);
        assert_eq!((buffer.held(), pool.lent()), (CHUNK, CHUNK));
        assert_eq!(read(&buffer, 0, 30_000), pattern(70_000, 30_000));
        // Bytes beyond a gap take their own chunk only.
        assert_eq!(buffer.lacks(200_000, 10), CHUNK);
        buffer.write(200_000, &pattern(270_000, 10), &mut pool);
        assert_eq!(buffer.held(), 2 * CHUNK);
        buffer.write(30_000, &pattern(100_000, 170_000), &mut pool);
        assert_eq!(read(&buffer, 0, 200_010), pattern(70_000, 200_010));
        buffer.clear(&mut pool);
        assert_eq!((buffer.held(), pool.lent()), (0, 0));
        assert_eq!(pool.idle.len(), 1);
    }

    #[test]
    fn a_piece_ends_with_its_chunk() {
        let mut pool = Pool::new(0);
        let mut buffer = Buffer::default();
        buffer.write(0, &pattern(0, CHUNK + 10), &mut pool);
        buffer.skip(100, &mut pool);
        assert_eq!(buffer.piece(0, usize::MAX).len(), CHUNK - 100);
        assert_eq!(buffer.piece(CHUNK - 100, 5), pattern(CHUNK, 5));
        buffer.skip(CHUNK - 100, &mut pool);
        assert_eq!(buffer.piece(0, 10), pattern(CHUNK, 10));
        buffer.clear(&mut pool);
        assert!(pool.idle.is_empty());
    }
}
