//! The beginning of SIP022 messages: their type and their time. Used by `packet` and `request`.

use crate::refused::Refused;
use crate::{cipher, wall};

/// The length of both in bytes.
pub const LENGTH: usize = 9;

/// The types of a client's and of a server's messages.
pub const FROM_CLIENT: u8 = 0;
pub const FROM_SERVER: u8 = 1;

/// The most seconds between a message's time and the local one.
const TOLERANCE: u64 = 30;

/// The most padding in sent and received messages, in bytes.
pub const LONGEST_PADDING: usize = 900;

/// The stamp of a message of this type, sent now.
pub fn now(kind: u8) -> [u8; LENGTH] {
    let mut stamp = [kind; LENGTH];
    stamp[1..].copy_from_slice(&wall::now().to_be_bytes());
    stamp
}

/// Checks that a message begins with this type, and with a time close to now.
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

/// The random length of the padding of a message without a payload, in bytes.
pub fn padding() -> usize {
    1 + cipher::random_below(LONGEST_PADDING as u32) as usize
}
