//! The TLVs of version 2: parsing and encoding.

use crate::refused::Refused;

/// The defined types.
pub const ALPN: u8 = 0x01;
pub const AUTHORITY: u8 = 0x02;
pub const CRC32C: u8 = 0x03;
pub const NOOP: u8 = 0x04;
pub const UNIQUE_ID: u8 = 0x05;
pub const SSL: u8 = 0x20;
pub const NETNS: u8 = 0x30;

/// The longest unique ID (section 2.2.5), and host name (as in HAProxy), in bytes.
const LONGEST_UNIQUE_ID: usize = 128;
const LONGEST_AUTHORITY: usize = 255;

/// The bytes before a value: its type, and its length in 16 bits.
const HEAD: usize = 3;

/// The bytes before the TLVs of a [`Ssl`]: flags, and the result of the verification.
const SSL_HEAD: usize = 5;

/// The TLVs of a header, in order. They are checked, and parsed while iterating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tlvs<'a>(&'a [u8]);

/// A single TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// The type (section 2.2.7 on).
    pub kind: u8,
    /// The value.
    pub value: &'a [u8],
}

impl Tlv<'_> {
    /// Appends the encoded TLV. Values in a header have at most 65,535 bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.push(self.kind);
        to.extend(
            u16::try_from(self.value.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        to.extend(self.value);
    }
}

/// The facts about TLS that the sender has terminated (section 2.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ssl<'a> {
    /// Flags. Bit 0: the client used TLS. Bit 1: it presented a certificate in this connection; bit
    /// 2: in this session.
    pub client: u8,
    /// The result of the verification. 0: the certificate was present and verified.
    pub verify: u32,
    /// The TLVs: version, names, algorithms, and the certificate.
    pub facts: Tlvs<'a>,
}

impl<'a> Tlvs<'a> {
    /// Checks the bytes behind the addresses.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Tlvs<'a>, Refused> {
        let tlvs = Tlvs::tiling(bytes)?;
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
                Tlvs::tiling(&tlv.value[SSL_HEAD..])?;
            }
        }
        Ok(tlvs)
    }

    /// Wraps bytes that were checked before.
    pub(crate) fn sound(bytes: &'a [u8]) -> Tlvs<'a> {
        Tlvs(bytes)
    }

    /// The value of the first TLV of this type.
    pub fn value(self, kind: u8) -> Option<&'a [u8]> {
        let mut all = self;
        all.find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }

    /// The facts about TLS, if any.
    pub fn ssl(self) -> Option<Ssl<'a>> {
        let (&[client, a, b, c, d], facts) = self.value(SSL)?.split_first_chunk::<SSL_HEAD>()?;
        Some(Ssl {
            client,
            verify: u32::from_be_bytes([a, b, c, d]),
            facts: Tlvs(facts),
        })
    }

    /// The offset of the checksum's value.
    pub(crate) fn checksum_at(self) -> Option<usize> {
        let checksum = self.value(CRC32C)?;
        Some(checksum.as_ptr() as usize - self.0.as_ptr() as usize)
    }

    /// Checks that the lengths add up.
    fn tiling(bytes: &'a [u8]) -> Result<Tlvs<'a>, Refused> {
        let mut rest = Tlvs(bytes);
        while rest.next().is_some() {}
        match rest.0.is_empty() {
            true => Ok(Tlvs(bytes)),
            false => Err(Refused::TlvLength),
        }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let &[kind, high, low] = self.0.first_chunk::<HEAD>()?;
        let end = HEAD + usize::from(u16::from_be_bytes([high, low]));
        let value = self.0.get(HEAD..end)?;
        self.0 = &self.0[end..];
        Some(Tlv { kind, value })
    }
}
