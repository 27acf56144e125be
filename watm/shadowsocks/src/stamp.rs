//! What messages of SIP022 begin with: their type and their time.

use crate::stream::Refused;
use crate::{cipher, wall};

/// Bytes of both.
pub const LENGTH: usize = 9;

/// The types: a client's, and a server's.
pub const FROM_CLIENT: u8 = 0;
pub const FROM_SERVER: u8 = 1;

/// How far a message's time may be from ours, in seconds.
const TOLERANCE: u64 = 30;

/// The most padding that a message of ours has, and one of others' may have.
pub const LONGEST_PADDING: usize = 900;

/// A message of this type, and of now.
pub fn now(kind: u8) -> [u8; LENGTH] {
    let mut stamp = [kind; LENGTH];
    stamp[1..].copy_from_slice(&wall::now().to_be_bytes());
    stamp
}

/// Whether a message begins with this type and with about this time.
pub fn check(message: &[u8], kind: u8) -> Result<(), Refused> {
    let (&found, rest) = message.split_first().ok_or(Refused::Length)?;
    let time = rest.first_chunk().ok_or(Refused::Length)?;
    if found != kind {
        return Err(Refused::Kind);
    }
    match u64::from_be_bytes(*time).abs_diff(wall::now()) <= TOLERANCE {
        true => Ok(()),
        false => Err(Refused::Time),
    }
}

/// How many bytes of padding a message gets that has no payload.
pub fn padding() -> usize {
    1 + cipher::random_below(LONGEST_PADDING as u32) as usize
}
