//! The messages before the chunks in SIP022. Used by `codec`.

use watm_core::Destination;
use watm_stream::Buffer;

use super::chunk::{Opener, Sealer};
use crate::address::{self, Parsed};
use crate::cipher::Key;
use crate::refused::Refused;
use crate::stamp::{self, FROM_CLIENT, FROM_SERVER, LONGEST_PADDING};

/// The length in bytes of a request's first message: its type, its time and the length of the next.
pub const FIXED: usize = stamp::LENGTH + 2;

/// Appends a request for `target`, which is encoded as in SOCKS5. It carries padding because its
/// data follow later.
pub fn write(target: &[u8], sealer: &mut Sealer, to: &mut Buffer) {
    let padding = stamp::padding();
    let mut variable = target.to_vec();
    variable.extend_from_slice(&(padding as u16).to_be_bytes());
    variable.resize(variable.len() + padding, 0);
    let mut fixed = stamp::now(FROM_CLIENT).to_vec();
    fixed.extend_from_slice(&(variable.len() as u16).to_be_bytes());
    sealer.message(&fixed, to);
    sealer.message(&variable, to);
}

/// Reads a request's first message, and expects the next. Returns false if it is incomplete.
pub fn read_fixed(opener: &mut Opener, from: &mut Buffer) -> Result<bool, Refused> {
    let mut fixed = Vec::with_capacity(FIXED);
    if !opener.message(FIXED, from, &mut fixed)? {
        return Ok(false);
    }
    stamp::check(&fixed, FROM_CLIENT)?;
    opener.expect(usize::from(u16::from_be_bytes([fixed[9], fixed[10]])));
    Ok(true)
}

/// Parses the second message: the destination, and the first data.
pub fn read_variable(message: &[u8]) -> Result<(Destination, &[u8]), Refused> {
    let Parsed::Complete(destination, length) = address::parse(message) else {
        return Err(Refused::Address);
    };
    let (padding, rest) = message[length..]
        .split_first_chunk()
        .ok_or(Refused::Length)?;
    let padding = usize::from(u16::from_be_bytes(*padding));
    let payload = rest.get(padding..).ok_or(Refused::Length)?;
    if padding > LONGEST_PADDING {
        return Err(Refused::Length);
    }
    match padding == 0 && payload.is_empty() {
        true => Err(Refused::Bare),
        false => Ok((destination, payload)),
    }
}

/// Appends the beginning of a server's stream: an answer to the request with this salt, whose first
/// payload has `length` bytes.
pub fn write_answer(request: &Key, length: usize, sealer: &mut Sealer, to: &mut Buffer) {
    let mut fixed = stamp::now(FROM_SERVER).to_vec();
    fixed.extend_from_slice(request.bytes());
    fixed.extend_from_slice(&(length as u16).to_be_bytes());
    sealer.message(&fixed, to);
}

/// Reads that beginning, and expects the first payload. Returns false if it is incomplete.
pub fn read_answer(request: &Key, opener: &mut Opener, from: &mut Buffer) -> Result<bool, Refused> {
    let salt = request.bytes();
    let mut fixed = Vec::with_capacity(FIXED + salt.len());
    if !opener.message(FIXED + salt.len(), from, &mut fixed)? {
        return Ok(false);
    }
    stamp::check(&fixed, FROM_SERVER)?;
    let (salt, length) = fixed[stamp::LENGTH..].split_at(salt.len());
    if salt != request.bytes() {
        return Err(Refused::Answer);
    }
    opener.expect(usize::from(u16::from_be_bytes([length[0], length[1]])));
    Ok(true)
}

/// Appends the names of the keys that a request passes on its way to the last one.
pub fn write_identities(keys: &[Key], salt: &Key, to: &mut Buffer) {
    for pair in keys.windows(2) {
        let mut name = pair[1].name();
        pair[0].identity(salt.bytes()).encrypt(&mut name);
        to.extend(&name);
    }
}
