//! One direction of a stream: chunks, each a length and a payload, both sealed. Used by `codec`,
//! `insecure` and `request`.

use watm_stream::{Buffer, CHUNK};

use super::insecure::Shuffle;
use crate::cipher::{Aead, BoxedAead, Counter, TAG};
use crate::refused::Refused;

/// The bytes of a sealed length.
pub const SEALED_LENGTH: usize = 2 + TAG;

/// The longest payloads of SIP004 and of SIP022, in bytes.
pub const LONGEST_2017: usize = 0x3fff;
pub const LONGEST_2022: usize = 0xffff;

/// The longest chunk that fits into a connection's buffer; longer chunks are gathered elsewhere.
const FITS: usize = CHUNK - 1024;

/// Encodes chunks.
pub struct Sealer {
    aead: BoxedAead,
    counter: Counter,
    longest: usize,
    insecure: Option<Insecure>,
}

/// The state of a direction in the mode that is compatible with gfw-report's patch: two counters
/// under the same key, and a first chunk with shuffled bits.
struct Insecure {
    lengths: Counter,
    first: Option<Shuffle>,
}

impl Sealer {
    pub fn new(aead: BoxedAead, longest: usize) -> Sealer {
        Sealer {
            aead,
            counter: Counter::default(),
            longest,
            insecure: None,
        }
    }

    /// Makes a sealer for gfw-report's patch.
    pub fn insecure(aead: BoxedAead, shuffle: Shuffle) -> Sealer {
        let mut sealer = Sealer::new(aead, Shuffle::LONGEST_PAYLOAD);
        sealer.insecure = Some(Insecure {
            lengths: Counter::default(),
            first: Some(shuffle),
        });
        sealer
    }

    /// The longest payload of a chunk, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Appends `data` in chunks.
    pub fn chunks(&mut self, data: &[u8], to: &mut Buffer) {
        for payload in data.chunks(self.longest) {
            match &mut self.insecure {
                None => {
                    let length = payload.len() as u16;
                    self.message(&length.to_be_bytes(), to);
                    self.message(payload, to);
                }
                Some(insecure) => {
                    let nonce = self.counter.next(self.aead.nonce_length());
                    let mut sealed = payload.to_vec();
                    let tag = self
                        .aead
                        .seal(&nonce[..self.aead.nonce_length()], &mut sealed);
                    sealed.extend_from_slice(&tag);
                    if let Some(shuffle) = insecure.first.take() {
                        sealed = shuffle.encode(sealed);
                    }
                    let length = (sealed.len() as u16).to_be_bytes();
                    seal(&*self.aead, &mut insecure.lengths, &length, to);
                    to.extend(&sealed);
                }
            }
        }
    }

    /// Appends one sealed message.
    pub fn message(&mut self, text: &[u8], to: &mut Buffer) {
        seal(&*self.aead, &mut self.counter, text, to);
    }
}

fn seal(aead: &dyn Aead, counter: &mut Counter, text: &[u8], to: &mut Buffer) {
    let nonce = counter.next(aead.nonce_length());
    let start = to.len();
    to.extend(text);
    let tag = aead.seal(&nonce[..aead.nonce_length()], &mut to.bytes_mut()[start..]);
    to.extend(&tag);
}

/// Decodes chunks.
pub struct Opener {
    aead: BoxedAead,
    counter: Counter,
    longest: usize,
    insecure: Option<Insecure>,
    /// The bytes of the chunk whose length has been read.
    expected: Option<usize>,
    /// The beginning of a chunk that does not fit into a connection's buffer.
    gathered: Vec<u8>,
}

impl Opener {
    pub fn new(aead: BoxedAead, longest: usize) -> Opener {
        Opener {
            aead,
            counter: Counter::default(),
            longest,
            insecure: None,
            expected: None,
            gathered: Vec::new(),
        }
    }

    /// Makes an opener for gfw-report's patch.
    pub fn insecure(aead: BoxedAead, shuffle: Shuffle) -> Opener {
        let mut opener = Opener::new(aead, LONGEST_2017);
        opener.insecure = Some(Insecure {
            lengths: Counter::default(),
            first: Some(shuffle),
        });
        opener
    }

    /// Returns true if the stream may end here.
    pub fn is_between(&self) -> bool {
        self.expected.is_none()
    }

    /// Set the length of the next payload, which another message gave.
    pub fn expect(&mut self, payload: usize) {
        self.expected = Some(payload + TAG);
    }

    /// Opens the message of `length` bytes, without its tag, at the beginning of `from`, and
    /// consumes it. Returns false if it has not arrived yet.
    pub fn message(
        &mut self,
        length: usize,
        from: &mut Buffer,
        to: &mut Vec<u8>,
    ) -> Result<bool, Refused> {
        let Some(sealed) = from.bytes_mut().get_mut(..length + TAG) else {
            return Ok(false);
        };
        let text = open(&*self.aead, &mut self.counter, sealed)?;
        to.extend_from_slice(text);
        from.consume(length + TAG);
        Ok(true)
    }

    /// Opens one chunk, and passes its payload to `take`. Returns false if it is incomplete.
    pub fn chunk(&mut self, from: &mut Buffer, take: impl FnOnce(&[u8])) -> Result<bool, Refused> {
        let Some(expected) = self.expect_chunk(from)? else {
            return Ok(false);
        };
        if expected > FITS {
            let missing = expected - self.gathered.len();
            let count = missing.min(from.len());
            self.gathered.extend_from_slice(&from.bytes()[..count]);
            from.consume(count);
            if count < missing {
                return Ok(false);
            }
            let mut sealed = std::mem::take(&mut self.gathered);
            take(self.payload(&mut sealed)?);
            return Ok(true);
        }
        let Some(sealed) = from.bytes_mut().get_mut(..expected) else {
            return Ok(false);
        };
        take(self.payload(sealed)?);
        from.consume(expected);
        Ok(true)
    }

    /// The sealed length of the next chunk. `None` if it has not arrived.
    fn expect_chunk(&mut self, from: &mut Buffer) -> Result<Option<usize>, Refused> {
        if self.expected.is_none() {
            let Some(sealed) = from.bytes_mut().get_mut(..SEALED_LENGTH) else {
                return Ok(None);
            };
            let counter = match &mut self.insecure {
                None => &mut self.counter,
                Some(insecure) => &mut insecure.lengths,
            };
            let text = open(&*self.aead, counter, sealed)?;
            let length = usize::from(u16::from_be_bytes([text[0], text[1]]));
            let (sealed, payload) = match self.insecure {
                None => (length + TAG, Some(length)),
                Some(_) => (length, length.checked_sub(TAG)),
            };
            if length > self.longest || payload.is_none() {
                return Err(Refused::Length);
            }
            from.consume(SEALED_LENGTH);
            self.expected = Some(sealed);
        }
        Ok(self.expected)
    }

    fn payload<'a>(&mut self, sealed: &'a mut [u8]) -> Result<&'a [u8], Refused> {
        self.expected = None;
        let sealed = match self
            .insecure
            .as_mut()
            .and_then(|insecure| insecure.first.take())
        {
            Some(shuffle) => shuffle.decode(sealed).ok_or(Refused::Length)?,
            None => sealed,
        };
        open(&*self.aead, &mut self.counter, sealed)
    }
}

fn open<'a>(
    aead: &dyn Aead,
    counter: &mut Counter,
    sealed: &'a mut [u8],
) -> Result<&'a [u8], Refused> {
    let nonce = counter.next(aead.nonce_length());
    match aead.open(&nonce[..aead.nonce_length()], sealed) {
        true => Ok(&sealed[..sealed.len() - TAG]),
        false => Err(Refused::NotAuthentic),
    }
}
