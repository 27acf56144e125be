use watm_core::{ByteStream, Direction, ErrorCode};

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// As much as was asked for: there may be more.
    More,
    /// Less, or nothing: no more for now.
    Short,
    /// The end of the stream, and no data.
    End,
}

/// One of the two streams between which a [`Relay`](crate::Relay) copies. No call waits.
pub trait End {
    /// Append at most `max` bytes, more than 0, to `into`.
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode>;

    /// Write. Returns how many bytes were accepted. [`ErrorCode::ConnectionAborted`]: the
    /// other side will read no more, but may have written something.
    fn write(&mut self, data: &[u8]) -> Result<usize, ErrorCode>;

    /// Write no more.
    fn finish(&mut self) -> Result<(), ErrorCode>;

    /// Read no more.
    fn ignore(&mut self) -> Result<(), ErrorCode>;
}

impl End for dyn ByteStream {
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode> {
        // A relay asks for its buffer's size.
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
