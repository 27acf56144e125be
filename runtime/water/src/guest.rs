//! Access to the guest's memory for the calls of `env` and `preview1`. Every pointer is checked.

use super::errno::Errno;

/// The most parts of one read or write: `IOV_MAX` of Linux.
const MAX_PARTS: u32 = 1024;

/// Returns the bytes at `pointer`.
pub(super) fn bytes(memory: &[u8], pointer: u32, len: u32) -> Result<&[u8], Errno> {
    let start = pointer as usize;
    let end = start.checked_add(len as usize).ok_or(Errno::FAULT)?;
    memory.get(start..end).ok_or(Errno::FAULT)
}

/// Returns the bytes at `pointer` for writing.
pub(super) fn bytes_mut(memory: &mut [u8], pointer: u32, len: u32) -> Result<&mut [u8], Errno> {
    let start = pointer as usize;
    let end = start.checked_add(len as usize).ok_or(Errno::FAULT)?;
    memory.get_mut(start..end).ok_or(Errno::FAULT)
}

/// Reads the number at `pointer`: little-endian, at any alignment, as WASI has it.
pub(super) fn read_u32(memory: &[u8], pointer: u32) -> Result<u32, Errno> {
    let bytes = bytes(memory, pointer, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub(super) fn write_u32(memory: &mut [u8], pointer: u32, value: u32) -> Result<(), Errno> {
    bytes_mut(memory, pointer, 4)?.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

pub(super) fn write_u64(memory: &mut [u8], pointer: u32, value: u64) -> Result<(), Errno> {
    bytes_mut(memory, pointer, 8)?.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

/// A list of parts, each a pointer and a length. The whole list lies in the guest's memory.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pointer: u32,
    count: u32,
}

impl Parts {
    pub(super) fn new(memory: &[u8], pointer: u32, count: u32) -> Result<Parts, Errno> {
        if count > MAX_PARTS {
            return Err(Errno::INVAL);
        }
        let parts = Parts { pointer, count };
        bytes(memory, pointer, count * 8)?;
        for index in 0..count {
            let (pointer, len) = parts.get(memory, index)?;
            bytes(memory, pointer, len)?;
        }
        Ok(parts)
    }

    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// Returns the pointer and the length of a part. Reads them each time, because bytes that are
    /// read into one part may change the list.
    pub(super) fn get(self, memory: &[u8], index: u32) -> Result<(u32, u32), Errno> {
        // `new` has checked the bounds, so nothing overflows.
        let at = self.pointer + index * 8;
        Ok((read_u32(memory, at)?, read_u32(memory, at + 4)?))
    }

    pub(super) fn total(self, memory: &[u8]) -> Result<u64, Errno> {
        (0..self.count).try_fold(0, |total, index| {
            Ok(total + u64::from(self.get(memory, index)?.1))
        })
    }

    /// Returns all parts as one, or `INVAL` if they are more than `max` bytes.
    pub(super) fn gather(self, memory: &[u8], max: usize) -> Result<Vec<u8>, Errno> {
        if self.total(memory)? > max as u64 {
            return Err(Errno::INVAL);
        }
        let mut whole = Vec::new();
        for index in 0..self.count {
            let (pointer, len) = self.get(memory, index)?;
            whole.extend_from_slice(bytes(memory, pointer, len)?);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_past_the_end_are_faults() {
        let mut memory = vec![0; 16];
        assert_eq!(bytes(&memory, 16, 0), Ok(&[][..]));
        for (pointer, len) in [(17, 0), (16, 1), (0, 17), (u32::MAX, 1), (1, u32::MAX)] {
            assert_eq!(bytes(&memory, pointer, len), Err(Errno::FAULT));
            assert!(bytes_mut(&mut memory, pointer, len).is_err());
        }
        assert_eq!(read_u32(&memory, 13), Err(Errno::FAULT));
        assert_eq!(write_u64(&mut memory, 9, 1), Err(Errno::FAULT));
    }

    #[test]
    fn lists_of_parts_are_checked_to_the_last() {
        let mut memory = vec![0; 64];
        write_u32(&mut memory, 0, 32).unwrap();
        write_u32(&mut memory, 4, 3).unwrap();
        write_u32(&mut memory, 8, 60).unwrap();
        write_u32(&mut memory, 12, 4).unwrap();
        memory[32..35].copy_from_slice(b"abc");
        memory[60..].copy_from_slice(b"defg");
        let parts = Parts::new(&memory, 0, 2).unwrap();
        assert_eq!(parts.gather(&memory, 7).unwrap(), b"abcdefg");
        assert_eq!(parts.gather(&memory, 6), Err(Errno::INVAL));
        write_u32(&mut memory, 12, 5).unwrap();
        assert_eq!(Parts::new(&memory, 0, 2).err(), Some(Errno::FAULT));
        assert_eq!(Parts::new(&memory, 0, MAX_PARTS).err(), Some(Errno::FAULT));
        assert_eq!(
            Parts::new(&memory, 0, MAX_PARTS + 1).err(),
            Some(Errno::INVAL)
        );
        assert_eq!(Parts::new(&memory, 60, 1).err(), Some(Errno::FAULT));
    }
}
