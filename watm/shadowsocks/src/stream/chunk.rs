//! A direction of a stream: chunks, each a length and a payload, both sealed.

use watm_stream::{Buffer, CHUNK};

use super::Refused;
use super::insecure::Shuffle;
use crate::cipher::{Aead, BoxedAead, Counter, TAG};

/// Bytes of a length, sealed.
pub const SEALED_LENGTH: usize = 2 + TAG;

/// The longest payload of SIP004, and of SIP022.
pub const LONGEST_2017: usize = 0x3fff;
pub const LONGEST_2022: usize = 0xffff;

/// What fits into a connection's buffer; a longer chunk is gathered elsewhere.
const FITS: usize = CHUNK - 1024;

/// Makes chunks.
pub struct Sealer {
    aead: BoxedAead,
    counter: Counter,
    longest: usize,
    insecure: Option<Insecure>,
}

/// What a direction has in the mode that is compatible with gfw-report's patch: two counters
/// with the same key, and a first chunk whose bits are mixed.
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

    /// As gfw-report's patch does it.
    pub fn insecure(aead: BoxedAead, shuffle: Shuffle) -> Sealer {
        let mut sealer = Sealer::new(aead, Shuffle::LONGEST_PAYLOAD);
        sealer.insecure = Some(Insecure {
            lengths: Counter::default(),
            first: Some(shuffle),
        });
        sealer
    }

    /// The longest payload of a chunk.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Append `data` in chunks.
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

    /// Append one sealed message.
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

/// Takes chunks apart.
pub struct Opener {
    aead: BoxedAead,
    counter: Counter,
    longest: usize,
    insecure: Option<Insecure>,
    /// Of the chunk whose length has been read: how many bytes it has.
    expected: Option<usize>,
    /// The beginning of one that does not fit into a connection's buffer.
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

    /// As gfw-report's patch does it.
    pub fn insecure(aead: BoxedAead, shuffle: Shuffle) -> Opener {
        let mut opener = Opener::new(aead, LONGEST_2017);
        opener.insecure = Some(Insecure {
            lengths: Counter::default(),
            first: Some(shuffle),
        });
        opener
    }

    /// Whether the stream may end here.
    pub fn is_between(&self) -> bool {
        self.expected.is_none()
    }

    /// The payload's length is known from elsewhere.
    pub fn expect(&mut self, payload: usize) {
        self.expected = Some(payload + TAG);
    }

    /// Open the message of `length` bytes, without its tag, that `from` begins with, and take
    /// it away. `None`: it has not come yet.
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

    /// Open one chunk, and hand its payload to `take`. False: it has not come whole.
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

    /// The length of the next chunk, sealed; `None` if that has not come.
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
