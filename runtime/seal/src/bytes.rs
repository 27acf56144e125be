//! The few shapes that everything signed is made of, read strictly and written one way.
//!
//! Integers are little-endian and of fixed width. A string or a record has its length before it as
//! a `u16`, a list its count as a `u8`, and the entries of a list ascend without repetition. So one
//! value has one encoding.

use std::fmt::Display;

use crate::Refused;

/// Reads from the front; each call names the field for the error.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

pub(crate) fn malformed(field: impl Display, reason: impl Display) -> Refused {
    Refused::Malformed {
        field: field.to_string(),
        reason: reason.to_string(),
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, field: &str, len: usize) -> Result<&'a [u8], Refused> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            let left = self.rest.len();
            let reason = format!("cut short: {left} bytes are left, and it takes {len}");
            return Err(malformed(field, reason));
        };
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], Refused> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, field: &str) -> Result<u8, Refused> {
        self.array(field).map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self, field: &str) -> Result<u16, Refused> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &str) -> Result<u32, Refused> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64, Refused> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn bool(&mut self, field: &str) -> Result<bool, Refused> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(field, format!("{other}; must be 0 or 1"))),
        }
    }

    /// With its length before it.
    pub(crate) fn record(&mut self, field: &str) -> Result<&'a [u8], Refused> {
        let len = self.u16(field)?;
        self.bytes(field, usize::from(len))
    }

    /// Text of printable ASCII characters, so that it can be shown as it is.
    pub(crate) fn text(&mut self, field: &str, limit: usize) -> Result<&'a str, Refused> {
        let bytes = self.record(field)?;
        check_text(field, bytes, limit)?;
        // Printable ASCII is UTF-8.
        std::str::from_utf8(bytes).map_err(|error| malformed(field, error))
    }

    /// A list of strictly ascending entries, of which it has at most `limit`.
    pub(crate) fn list<T: Ord>(
        &mut self,
        field: &str,
        limit: usize,
        mut entry: impl FnMut(&mut Reader<'a>) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        let count = usize::from(self.u8(field)?);
        check_count(field, count, limit)?;
        let mut list: Vec<T> = Vec::with_capacity(count);
        for _ in 0..count {
            let next = entry(self)?;
            if list.last().is_some_and(|last| *last >= next) {
                return Err(malformed(field, "its entries must ascend, each once"));
            }
            list.push(next);
        }
        Ok(list)
    }

    /// That nothing is left.
    pub(crate) fn end(self, field: &str) -> Result<(), Refused> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(malformed(field, format!("{more} bytes too many"))),
        }
    }
}

/// That a text is one that [`Reader::text`] reads.
pub(crate) fn check_text(field: &str, text: &[u8], limit: usize) -> Result<(), Refused> {
    if text.len() > limit {
        let len = text.len();
        return Err(malformed(field, format!("{len} bytes; at most {limit}")));
    }
    match text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(()),
        false => Err(malformed(field, "must be printable ASCII characters")),
    }
}

/// That a list is not too long.
pub(crate) fn check_count(field: &str, count: usize, limit: usize) -> Result<(), Refused> {
    match count <= limit {
        true => Ok(()),
        false => Err(malformed(
            field,
            format!("{count} entries; at most {limit}"),
        )),
    }
}

/// Writes what [`Reader`] reads. Lengths and counts have been checked against limits far below
/// what their fields hold.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn record(&mut self, bytes: &[u8]) -> &mut Writer {
        let len = u16::try_from(bytes.len()).expect("records are checked to be under 64 KiB");
        self.u16(len).bytes(bytes)
    }

    pub(crate) fn count(&mut self, count: usize) -> &mut Writer {
        self.u8(u8::try_from(count).expect("lists are checked to have under 256 entries"))
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
