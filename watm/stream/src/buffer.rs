//! The byte queue of relays and codecs.

use std::mem;

/// A queue of bytes: appended at the back, consumed at the front.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// The index of the first byte that is not consumed.
    start: usize,
}

impl Buffer {
    /// The queued bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The queued bytes, for changes in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// The number of queued bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns true if no bytes are queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Take `count` bytes from the front, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.start += count.min(self.len());
        if self.is_empty() {
            self.clear();
        }
    }

    /// Put a copy of `data` at the back.
    pub fn extend(&mut self, data: &[u8]) {
        self.tail().extend_from_slice(data);
    }

    /// Put a copy of `data` at the front.
    pub fn prepend(&mut self, data: &[u8]) {
        if !data.is_empty() {
            self.tail().splice(..0, data.iter().copied());
        }
    }

    /// Move all of `other` to the back; without a copy if this one is empty.
    pub fn append(&mut self, other: &mut Buffer) {
        if self.is_empty() {
            mem::swap(self, other);
        } else {
            self.extend(other.bytes());
        }
        other.clear();
    }

    /// Drop all bytes, and keep the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }

    /// The bytes as a vector to append to.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..mem::take(&mut self.start));
        &mut self.bytes
    }

    /// Exchange two empty buffers if the other one has more memory.
    pub(crate) fn adopt(&mut self, other: &mut Buffer) {
        if self.is_empty() && other.is_empty() && self.bytes.capacity() < other.bytes.capacity() {
            mem::swap(self, other);
        }
    }
}
