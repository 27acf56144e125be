//! The PROXY header that names the client to the application. Used by `accepted`.

use std::net::SocketAddr;

use ring::rand::{SecureRandom, SystemRandom};
use watm_proxy_header::tlv::{
    ALPN, AUTHORITY, CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, SSL, SSL_CIPHER,
    SSL_CLIENT_CERT, SSL_CN, SSL_GROUP, SSL_VERSION, UNIQUE_ID, write_ssl,
};
use watm_proxy_header::{Protocol, Tlv, Tlvs, openssl_name, write_v1, write_v2};

use crate::accepted::HandshakeFacts;
use crate::config::{ProxyOut, Version};
use crate::facts;

/// The types of TLVs about the TLS that ends here. A previous proxy's TLVs of these types describe another connection.
pub const OWN: [u8; 3] = [ALPN, AUTHORITY, SSL];

/// Encodes a header. `came` has the TLVs of a previous proxy, which are forwarded as received, except for [`OWN`].
pub fn header(
    out: ProxyOut,
    ends: Option<(SocketAddr, SocketAddr)>,
    said: &HandshakeFacts,
    came: Tlvs<'_>,
) -> Vec<u8> {
    if out.version == Version::One {
        return write_v1(ends);
    }
    let named = came.value(UNIQUE_ID).is_some();
    let id = (out.unique_id && !named).then(unique_id).flatten();
    // A certificate may be longer than a header.
    [out.certificate, false]
        .into_iter()
        .find_map(|certificate| {
            let ssl = ssl(said, certificate)?;
            let facts = [
                (ALPN, said.protocol.as_deref()),
                (AUTHORITY, said.name.as_deref().map(str::as_bytes)),
                (UNIQUE_ID, id.as_deref()),
                (SSL, Some(ssl.as_slice())),
            ];
            let own = facts.into_iter().filter_map(|(kind, value)| {
                Some(Tlv {
                    kind,
                    value: value?,
                })
            });
            let came = came.filter(|tlv| !OWN.contains(&tlv.kind));
            write_v2(Protocol::Stream, ends, &own.chain(came).collect::<Vec<_>>())
        })
        .unwrap_or_default()
}

/// 16 random bytes in hexadecimal. `None` if the host's random number generator failed.
fn unique_id() -> Option<Vec<u8>> {
    let mut made = [0; 16];
    SystemRandom::new().fill(&mut made).ok()?;
    Some(facts::hex(&made).into_bytes())
}

/// The TLV about TLS. `None` if it is too long.
fn ssl(said: &HandshakeFacts, certificate: bool) -> Option<Vec<u8>> {
    let client = match (&said.client, said.resumed) {
        (None, _) => CLIENT_SSL,
        (Some(_), true) => CLIENT_SSL | CLIENT_CERT_SESS,
        (Some(_), false) => CLIENT_SSL | CLIENT_CERT_CONN | CLIENT_CERT_SESS,
    };
    // 0: the presented certificate is valid. Other clients do not get here.
    let verify = u32::from(said.client.is_none());
    let common_name = said
        .client
        .as_ref()
        .and_then(|(_, facts)| facts.common_name.as_deref());
    let shown = said.client.as_ref().filter(|_| certificate);
    let cipher = said.cipher.as_deref().map(openssl_name);
    let facts = [
        (SSL_VERSION, said.version.map(str::as_bytes)),
        (SSL_CN, common_name.map(str::as_bytes)),
        (SSL_CIPHER, cipher.as_deref().map(str::as_bytes)),
        (SSL_GROUP, said.group.as_deref().map(str::as_bytes)),
        (SSL_CLIENT_CERT, shown.map(|(bytes, _)| bytes.as_slice())),
    ];
    let facts = facts.into_iter().filter_map(|(kind, value)| {
        Some(Tlv {
            kind,
            value: value?,
        })
    });
    write_ssl(client, verify, facts)
}
