//! The checks of the TLVs of version 2. Used by `v2`.

use watm_proxy_header::Tlvs;
use watm_proxy_header::tlv::{AUTHORITY, CRC32C, LONGEST_UNIQUE_ID, SSL, SSL_HEAD, UNIQUE_ID};

use crate::refused::Refused;

/// The longest host name (as in HAProxy), in bytes.
const LONGEST_AUTHORITY: usize = 255;

/// Checks the bytes behind the addresses.
pub fn check(bytes: &[u8]) -> Result<Tlvs<'_>, Refused> {
    let tlvs = Tlvs::new(bytes).ok_or(Refused::TlvLength)?;
    for tlv in tlvs {
        let (sound, once) = match tlv.kind {
            CRC32C => (tlv.value.len() == 4, true),
            UNIQUE_ID => (tlv.value.len() <= LONGEST_UNIQUE_ID, true),
            AUTHORITY => (tlv.value.len() <= LONGEST_AUTHORITY, false),
            SSL => (tlv.value.len() >= SSL_HEAD, true),
            _ => (true, false),
        };
        if !sound {
            return Err(Refused::TlvSize);
        }
        if once && tlvs.filter(|other| other.kind == tlv.kind).count() > 1 {
            return Err(Refused::TlvTwice);
        }
        if tlv.kind == SSL {
            Tlvs::new(&tlv.value[SSL_HEAD..]).ok_or(Refused::TlvLength)?;
        }
    }
    Ok(tlvs)
}

/// Returns the offset of the checksum's value.
pub fn checksum_at(tlvs: Tlvs<'_>) -> Option<usize> {
    let checksum = tlvs.value(CRC32C)?;
    Some(checksum.as_ptr() as usize - tlvs.bytes().as_ptr() as usize)
}
