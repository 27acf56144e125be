//! The TLVs of version 2: types, encoding, and iteration. Used by `write`.

/// The protocol that TLS negotiated (ALPN).
pub const ALPN: u8 = 0x01;
/// The host name that the client asked for.
pub const AUTHORITY: u8 = 0x02;
/// The checksum of the header.
pub const CRC32C: u8 = 0x03;
/// Padding.
pub const NOOP: u8 = 0x04;
/// An identifier of the connection.
pub const UNIQUE_ID: u8 = 0x05;
/// Facts about TLS, see [`Ssl`].
pub const SSL: u8 = 0x20;
/// The network namespace.
pub const NETNS: u8 = 0x30;

/// The TLVs within [`SSL`]: the version of TLS.
pub const SSL_VERSION: u8 = 0x21;
/// The common name of the client's certificate.
pub const SSL_CN: u8 = 0x22;
/// OpenSSL's name of the cipher.
pub const SSL_CIPHER: u8 = 0x23;
/// The algorithm that the client's certificate is signed with.
pub const SSL_SIG_ALG: u8 = 0x24;
/// The algorithm of its key.
pub const SSL_KEY_ALG: u8 = 0x25;
/// The group of the key exchange.
pub const SSL_GROUP: u8 = 0x26;
/// The scheme of the handshake's signature.
pub const SSL_SIG_SCHEME: u8 = 0x27;
/// The client's certificate, as DER.
pub const SSL_CLIENT_CERT: u8 = 0x28;

/// The flag of [`SSL`] for: the client used TLS.
pub const CLIENT_SSL: u8 = 1;
/// The flag for: it presented a certificate on this connection.
pub const CLIENT_CERT_CONN: u8 = 2;
/// The flag for: it presented a certificate in this session.
pub const CLIENT_CERT_SESS: u8 = 4;

/// The most bytes of a [`UNIQUE_ID`] (section 2.2.5).
pub const LONGEST_UNIQUE_ID: usize = 128;

/// The attributes of a flow that hold the TLVs within [`SSL`].
pub const SSL_ATTRIBUTES: [(u8, &str); 8] = [
    (SSL_VERSION, "tls.version"),
    (SSL_CN, "tls.client-cn"),
    (SSL_CIPHER, "tls.cipher"),
    (SSL_SIG_ALG, "tls.signature-algorithm"),
    (SSL_KEY_ALG, "tls.key-algorithm"),
    (SSL_GROUP, "tls.group"),
    (SSL_SIG_SCHEME, "tls.signature-scheme"),
    (SSL_CLIENT_CERT, "tls.client-certificate"),
];

/// The bytes before a value: its type, and its length in 16 bits.
const HEAD: usize = 3;

/// The bytes before the TLVs of a [`Ssl`]: flags, and the result of the verification.
pub const SSL_HEAD: usize = 5;

/// A single TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// The type (section 2.2.7 on).
    pub kind: u8,
    /// The value.
    pub value: &'a [u8],
}

impl Tlv<'_> {
    /// Appends the encoded TLV. `None` if the value has more than 65,535 bytes.
    pub fn write(&self, to: &mut Vec<u8>) -> Option<()> {
        let length = u16::try_from(self.value.len()).ok()?;
        to.push(self.kind);
        to.extend(length.to_be_bytes());
        to.extend(self.value);
        Some(())
    }
}

/// Encodes the value of an [`SSL`] (section 2.2.6): flags, the result of the verification (0: a certificate was
/// presented and verified), and facts. `None` if a fact has more than 65,535 bytes.
pub fn write_ssl<'a>(
    flags: u8,
    verify: u32,
    facts: impl IntoIterator<Item = Tlv<'a>>,
) -> Option<Vec<u8>> {
    let mut value = vec![flags];
    value.extend(verify.to_be_bytes());
    for fact in facts {
        fact.write(&mut value)?;
    }
    Some(value)
}

/// The facts about TLS that the sender has terminated (section 2.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ssl<'a> {
    /// Flags: [`CLIENT_SSL`], [`CLIENT_CERT_CONN`], [`CLIENT_CERT_SESS`].
    pub client: u8,
    /// The result of the verification. 0: a certificate was presented and verified.
    pub verify: u32,
    /// The TLVs: version, names, algorithms, and the certificate.
    pub facts: Tlvs<'a>,
}

/// TLVs in order, parsed while iterating. The iteration ends at the first one whose length is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// Wraps encoded TLVs. `None` if their lengths do not add up.
    pub fn new(bytes: &'a [u8]) -> Option<Tlvs<'a>> {
        let mut rest = Tlvs(bytes);
        while rest.next().is_some() {}
        rest.0.is_empty().then_some(Tlvs(bytes))
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

    /// The encoded TLVs.
    pub fn bytes(self) -> &'a [u8] {
        self.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_about_tls_are_written_as_they_are_read() {
        let version = Tlv {
            kind: SSL_VERSION,
            value: b"TLSv1.3",
        };
        let value = write_ssl(CLIENT_SSL | CLIENT_CERT_SESS, 0x1_0203, [version]).unwrap();
        assert_eq!(value, b"\x05\0\x01\x02\x03\x21\0\x07TLSv1.3");
        let mut bytes = Vec::new();
        let ssl = Tlv {
            kind: SSL,
            value: &value,
        };
        ssl.write(&mut bytes).unwrap();
        let read = Tlvs::new(&bytes).and_then(Tlvs::ssl).unwrap();
        assert_eq!((read.client, read.verify), (5, 0x1_0203));
        assert_eq!(read.facts.collect::<Vec<_>>(), [version]);
        let long = Tlv {
            kind: SSL_CN,
            value: &[b'x'; 1 << 16],
        };
        assert_eq!(write_ssl(CLIENT_SSL, 0, [long]), None);
        assert_eq!(Tlvs::new(&bytes[..9]), None);
    }
}
