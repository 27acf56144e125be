//! Reader and writer for the encoding of everything that is signed: strict when reading, one
//! encoding when writing. All record types of this crate use it.
//!
//! Integers are little-endian and of fixed width. A string or a record is preceded by its length as
//! a `u16`, a list by its count as a `u8`, and the entries of a list ascend without repetition. One
//! value therefore has one encoding.

use std::fmt::Display;

use crate::Refused;

/// Reads fields from the front of a buffer. Each call names its field for the error.
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
            let reason = format!("truncated: {left} bytes are left, {len} are needed");
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

    /// Reads a `u16` length and as many bytes.
    pub(crate) fn record(&mut self, field: &str) -> Result<&'a [u8], Refused> {
        let len = self.u16(field)?;
        self.bytes(field, usize::from(len))
    }

    /// Reads printable ASCII text of at most `limit` bytes, which is safe to show unchanged.
    pub(crate) fn text(&mut self, field: &str, limit: usize) -> Result<&'a str, Refused> {
        let bytes = self.record(field)?;
        check_text(field, bytes, limit)?;
        // Printable ASCII is UTF-8.
        std::str::from_utf8(bytes).map_err(|error| malformed(field, error))
    }

    /// Reads a list of at most `limit` strictly ascending entries.
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
                return Err(malformed(
                    field,
                    "entries must be in ascending order, without duplicates",
                ));
            }
            list.push(next);
        }
        Ok(list)
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(self, field: &str) -> Result<(), Refused> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(malformed(
                field,
                format!("{more} unexpected bytes at the end"),
            )),
        }
    }
}

/// Checks that [`Reader::text`] would accept a text.
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

/// Checks that a list has at most `limit` entries.
pub(crate) fn check_count(field: &str, count: usize, limit: usize) -> Result<(), Refused> {
    match count <= limit {
        true => Ok(()),
        false => Err(malformed(
            field,
            format!("{count} entries; at most {limit}"),
        )),
    }
}

/// Writes the encoding that [`Reader`] reads. Callers have checked lengths and counts against
/// limits far below the capacity of their fields.
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
