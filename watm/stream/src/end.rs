//! The two ends that a relay copies between: a host's streams here, file descriptors in the shell
//! for WATER.

use watm_core::{ByteStream, Direction, ErrorCode};

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The requested number of bytes; there may be more.
    More,
    /// Fewer bytes, or none; no more for now.
    Short,
    /// The end of the stream, without data.
    End,
}

/// One of the two streams between which a [`Relay`](crate::Relay) copies. No call blocks.
pub trait End {
    /// Append at most `max` bytes, more than 0, to `into`.
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode>;

    /// Write. Returns the number of bytes accepted. Fails with [`ErrorCode::ConnectionAborted`] if
    /// the other side has stopped reading. It may still have written data.
    fn write(&mut self, data: &[u8]) -> Result<usize, ErrorCode>;

    /// Close the write direction.
    fn finish(&mut self) -> Result<(), ErrorCode>;

    /// Close the read direction.
    fn ignore(&mut self) -> Result<(), ErrorCode>;
}

impl End for dyn ByteStream {
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode> {
        // A relay asks for the size of its buffer, which fits.
        let ask = u32::try_from(max).unwrap_or(u32::MAX);
        let Some(data) = ByteStream::read(self, ask)? else {
            return Ok(Read::End);
        };
        let full = data.len() >= max;
        if into.is_empty() {
            *into = data;
        } else {
            into.extend_from_slice(&data);
        }
        Ok(if full { Read::More } else { Read::Short })
    }

    fn write(&mut self, data: &[u8]) -> Result<usize, ErrorCode> {
        Ok(ByteStream::write(self, data)? as usize)
    }

    fn finish(&mut self) -> Result<(), ErrorCode> {
        self.shutdown(Direction::Write)
    }

    fn ignore(&mut self) -> Result<(), ErrorCode> {
        self.shutdown(Direction::Read)
    }
}
