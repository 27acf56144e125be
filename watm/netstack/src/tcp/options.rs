//! TCP options: reading those of a received segment, and writing those of a sent one.
//!
//! MSS, window scale, SACK (RFC 2018) and timestamps (RFC 7323) are known. Others are skipped.

use super::sequence::{Block, Sequence};

/// The most blocks in one segment: the options have 40 bytes.
pub(crate) const BLOCKS: usize = 4;
/// The same beside a timestamp.
pub(crate) const BLOCKS_WITH_TIMESTAMP: usize = 3;
/// The bytes of a timestamp with its padding.
pub(crate) const TIMESTAMP_BYTES: usize = 12;
/// The most bytes of options.
const MOST: usize = 40;
/// The largest window scale (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;

const END: u8 = 0;
const PADDING: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// The timestamp of a segment: its clock, and the clock that it echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub value: u32,
    pub echo: u32,
}

/// The options of a received segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub selective: bool,
    pub timestamp: Option<Timestamp>,
    blocks: [Block; BLOCKS],
    block_count: u8,
}

impl Options {
    /// Parses the options of a segment. `None` if one of them is malformed.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Options> {
        let mut options = Options::default();
        if let [PADDING, PADDING, TIMESTAMP, 10, rest @ ..] = bytes
            && let Some((timestamp, [])) = rest.split_first_chunk::<8>()
        {
            options.timestamp = Some(timestamp_of(timestamp));
            return Some(options);
        }
        while let [kind, rest @ ..] = bytes {
            bytes = match *kind {
                END => break,
                PADDING => rest,
                kind => {
                    let (length, rest) = rest.split_first()?;
                    let (value, rest) =
                        rest.split_at_checked(usize::from(*length).checked_sub(2)?)?;
                    options.take(kind, value)?;
                    rest
                }
            };
        }
        Some(options)
    }

    /// Takes an option. `None` if its length is wrong.
    fn take(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(value.try_into().ok()?)),
            SCALE => {
                let [scale] = *value else { return None };
                self.scale = Some(scale.min(MOST_SCALE));
            }
            SACK_PERMITTED => self.selective = value.is_empty(),
            SACK => self.take_blocks(value)?,
            TIMESTAMP => self.timestamp = Some(timestamp_of(value.try_into().ok()?)),
            _ => {}
        }
        Some(())
    }

    fn take_blocks(&mut self, value: &[u8]) -> Option<()> {
        let (blocks, []) = value.as_chunks::<8>() else {
            return None;
        };
        for (place, block) in self.blocks.iter_mut().zip(blocks) {
            let (start, end) = halves(block);
            *place = (Sequence(start), Sequence(end));
            self.block_count += 1;
        }
        Some(())
    }

    /// The ranges that the peer has received beyond a gap, or twice.
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks[..usize::from(self.block_count)]
    }
}

fn halves(bytes: &[u8; 8]) -> (u32, u32) {
    let both = u64::from_be_bytes(*bytes);
    ((both >> 32) as u32, both as u32)
}

fn timestamp_of(bytes: &[u8; 8]) -> Timestamp {
    let (value, echo) = halves(bytes);
    Timestamp { value, echo }
}

/// The options of a segment to send, as bytes, padded to a multiple of four.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    bytes: [u8; MOST],
    len: u8,
}

impl Written {
    pub(crate) fn new() -> Self {
        Written {
            bytes: [0; MOST],
            len: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn add(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    pub(crate) fn mss(&mut self, mss: u16) {
        let [high, low] = mss.to_be_bytes();
        self.add(&[MSS, 4, high, low]);
    }

    pub(crate) fn scale(&mut self, scale: u8) {
        self.add(&[PADDING, SCALE, 3, scale]);
    }

    pub(crate) fn selective(&mut self) {
        self.add(&[PADDING, PADDING, SACK_PERMITTED, 2]);
    }

    pub(crate) fn timestamp(&mut self, timestamp: Timestamp) {
        self.add(&[PADDING, PADDING, TIMESTAMP, 10]);
        self.add(&timestamp.value.to_be_bytes());
        self.add(&timestamp.echo.to_be_bytes());
    }

    /// Adds blocks (RFC 2018 section 3): at most [`BLOCKS`], or [`BLOCKS_WITH_TIMESTAMP`].
    pub(crate) fn blocks(&mut self, blocks: impl Iterator<Item = Block>) {
        let head = usize::from(self.len);
        self.add(&[PADDING, PADDING, SACK, 2]);
        for (start, end) in blocks {
            self.add(&start.0.to_be_bytes());
            self.add(&end.0.to_be_bytes());
            // The length of the option.
            self.bytes[head + 3] += 8;
        }
        if self.bytes[head + 3] == 2 {
            self.len = head as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let timestamp = Timestamp { value: 7, echo: 9 };
        let mut written = Written::new();
        written.mss(1380);
        written.selective();
        written.timestamp(timestamp);
        written.scale(6);
        let options = Options::parse(written.bytes()).unwrap();
        assert_eq!((options.mss, options.scale), (Some(1380), Some(6)));
        assert!(options.selective && options.blocks().is_empty());
        assert_eq!(options.timestamp, Some(timestamp));
        let blocks = [(1, 2), (5, 9), (20, 30), (u32::MAX, 4)];
        let blocks = blocks.map(|(start, end)| (Sequence(start), Sequence(end)));
        let mut written = Written::new();
        written.blocks(blocks.into_iter());
        assert_eq!(written.bytes().len(), 36);
        assert_eq!(Options::parse(written.bytes()).unwrap().blocks(), blocks);
        let mut written = Written::new();
        written.timestamp(timestamp);
        written.blocks(blocks.into_iter().take(BLOCKS_WITH_TIMESTAMP));
        let options = Options::parse(written.bytes()).unwrap();
        assert_eq!(options.timestamp, Some(timestamp));
        assert_eq!(options.blocks(), &blocks[..3]);
        let mut written = Written::new();
        written.blocks([].into_iter());
        assert!(written.bytes().is_empty());
    }

    #[test]
    fn unknown_options_are_skipped_and_malformed_ones_are_noticed() {
        let options = Options::parse(&[254, 4, 1, 2, 2, 4, 5, 0x64, 0, 2]).unwrap();
        assert_eq!(options.mss, Some(0x564));
        assert_eq!(Options::parse(&[3, 3, 200]).unwrap().scale, Some(14));
        for malformed in [
            &[2][..],
            &[2, 0],
            &[2, 1],
            &[2, 3, 5],
            &[2, 5, 5, 5, 5],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[8, 9, 0, 0, 0, 0, 0, 0, 0],
            &[1, 1, 8, 10, 0, 0],
            &[254, 9, 0],
        ] {
            assert!(Options::parse(malformed).is_none(), "{malformed:?}");
        }
    }
}
