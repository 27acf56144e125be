use std::collections::VecDeque;

use super::KEPT_CAPACITY;

/// A queue of bytes whose memory is what it holds: chunks come and go, and an empty
/// queue holds none.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are taken already.
    taken: usize,
    len: usize,
}

/// Small writes are gathered in chunks of up to this size, so that a byte at a time does
/// not cost an allocation each.
const GATHER: usize = 4096;

impl Chunks {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        if !self.gather(data) {
            self.append(data.to_vec());
        }
    }

    pub(crate) fn push_vec(&mut self, data: Vec<u8>) {
        if !self.gather(&data) {
            self.append(data);
        }
    }

    /// Take up to `max` bytes; one chunk that fits is handed over without copying.
    pub(crate) fn take(&mut self, max: usize) -> Vec<u8> {
        if let Some(first) = self.chunks.front()
            && self.taken == 0
            && first.len() <= max
            && (self.chunks.len() == 1 || first.len() == max)
        {
            self.len -= first.len();
            let whole = self.chunks.pop_front().unwrap_or_default();
            self.shrink();
            return whole;
        }
        let count = max.min(self.len);
        let mut out = Vec::with_capacity(count);
        while out.len() < count {
            let Some(first) = self.chunks.front() else {
                break;
            };
            let rest = &first[self.taken..];
            let wanted = count - out.len();
            if rest.len() <= wanted {
                out.extend_from_slice(rest);
                self.chunks.pop_front();
                self.taken = 0;
            } else {
                out.extend_from_slice(&rest[..wanted]);
                self.taken += wanted;
            }
        }
        self.len -= out.len();
        self.shrink();
        out
    }

    pub(crate) fn clear(&mut self) {
        *self = Chunks::default();
    }

    fn shrink(&mut self) {
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CAPACITY {
            self.chunks = VecDeque::new();
        }
    }

    fn gather(&mut self, data: &[u8]) -> bool {
        if data.is_empty() {
            return true;
        }
        match self.chunks.back_mut() {
            Some(last) if last.len() + data.len() <= GATHER => {
                last.extend_from_slice(data);
                self.len += data.len();
                true
            }
            _ => false,
        }
    }

    fn append(&mut self, data: Vec<u8>) {
        self.len += data.len();
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
            let taken = queue.take((step * 104_729) % 7000);
            assert!(taken.len() <= (step * 104_729) % 7000);
            got.extend_from_slice(&taken);
            assert_eq!(queue.len(), expected.len() - got.len());
        }
        got.extend_from_slice(&queue.take(usize::MAX));
        assert!(queue.is_empty());
        assert!(got == expected);
    }

    #[test]
    fn an_empty_queue_gives_nothing() {
        let mut queue = Chunks::default();
        queue.push(b"");
        assert!(queue.is_empty());
        assert!(queue.take(10).is_empty());
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
