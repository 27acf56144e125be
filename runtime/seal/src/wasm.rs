//! The part of WebAssembly's binary format that a seal needs: the header, and the frames of the
//! top-level sections, which modules and components share. `sealed` uses it.

use crate::Refused;
use crate::bytes::malformed;

/// The length of the header: the magic number, and the version, whose second half tells modules and
/// components apart.
pub(crate) const HEADER: usize = 8;
const MAGIC: &[u8] = b"\0asm";
/// The name of the seal's section.
pub(crate) const SEAL: &[u8] = b"watm.seal";
const CUSTOM: u8 = 0;

/// The content of the seal's section, and the sections after it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits the seal from the sections after the header, if they begin with one.
pub(crate) fn split_seal(sections: &[u8]) -> Result<Option<Split<'_>>, Refused> {
    let Ok(Some(first)) = next_section(sections) else {
        return Ok(None);
    };
    let Some(seal) = first.seal() else {
        return Ok(None);
    };
    match frame_seal(seal).len() == sections.len() - first.rest.len() {
        true => Ok(Some((seal, first.rest))),
        false => Err(malformed(
            "seal section",
            "its lengths are not in the shortest encoding",
        )),
    }
}

/// Returns the section that contains this seal.
pub(crate) fn frame_seal(seal: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(SEAL.len() + seal.len() + 1);
    write_leb(&mut content, SEAL.len());
    content.extend_from_slice(SEAL);
    content.extend_from_slice(seal);
    let mut section = vec![CUSTOM];
    write_leb(&mut section, content.len());
    section.extend_from_slice(&content);
    section
}

/// Checks that these are a header and complete sections, none of them a seal.
pub(crate) fn check_unsealed(header: &[u8], sections: &[u8]) -> Result<(), Refused> {
    if header.len() != HEADER || !header.starts_with(MAGIC) {
        return Err(Refused::NotWasm);
    }
    let mut rest = sections;
    while let Some(section) = next_section(rest)? {
        if section.seal().is_some() {
            return Err(Refused::MisplacedSeal);
        }
        rest = section.rest;
    }
    Ok(())
}

struct Section<'a> {
    id: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Section<'a> {
    /// Returns the seal, if this is the seal's section.
    fn seal(&self) -> Option<&'a [u8]> {
        if self.id != CUSTOM {
            return None;
        }
        let (len, content) = read_leb(self.content)?;
        let (name, seal) = content.split_at_checked(len)?;
        (name == SEAL).then_some(seal)
    }
}

fn next_section(bytes: &[u8]) -> Result<Option<Section<'_>>, Refused> {
    let Some((id, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let section = read_leb(rest).and_then(|(len, rest)| {
        let (content, rest) = rest.split_at_checked(len)?;
        Some(Section {
            id: *id,
            content,
            rest,
        })
    });
    match section {
        Some(section) => Ok(Some(section)),
        None => Err(malformed("section", "is truncated")),
    }
}

/// Reads an unsigned 32-bit number in LEB128. Returns it with the bytes after it.
fn read_leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    // Five groups of seven bits hold 32.
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let value = usize::try_from(u32::try_from(value).ok()?).ok()?;
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

fn write_leb(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
