//! The facts of a header, as addresses and attributes of a flow. Used by `codec`, `datagrams` and
//! `opening`.

use std::fmt::Write;
use std::net::SocketAddr;
use std::str;

use watm_core::FlowInfo;
use watm_proxy_header::Tlvs;
use watm_proxy_header::tlv::{
    self, CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, SSL_ATTRIBUTES,
};

use crate::header::{Addresses, Proxied};

/// The description of a flow from a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The client and its destination. An IPv4-mapped IPv6 address becomes the IPv4 address.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The attributes, each with the type of its TLV.
    attributes: Vec<(u8, String, String)>,
    /// The TLVs as received, without the checksum, which covers that header, and without padding.
    tlvs: Vec<u8>,
}

/// The type of values that come from no TLV. The specification does not reserve it, and no sender
/// uses it.
const NO_TYPE: u8 = 0;

impl Facts {
    /// Collects the facts of a header.
    pub fn of(proxied: &Proxied<'_>) -> Facts {
        let mut facts = Facts {
            ends: ends(&proxied.addresses),
            ..Facts::default()
        };
        if let Addresses::Unix {
            source,
            destination,
        } = proxied.addresses
        {
            facts.add(NO_TYPE, "proxy.unix-source", source);
            facts.add(NO_TYPE, "proxy.unix-destination", destination);
        }
        for tlv in proxied.tlvs {
            if !matches!(tlv.kind, tlv::CRC32C | tlv::NOOP) {
                tlv.write(&mut facts.tlvs);
            }
            match tlv.kind {
                tlv::ALPN => facts.add(tlv.kind, "alpn", tlv.value),
                tlv::AUTHORITY => facts.add(tlv.kind, "sni", tlv.value),
                tlv::UNIQUE_ID => facts.add(tlv.kind, "proxy.unique-id", tlv.value),
                tlv::NETNS => facts.add(tlv.kind, "proxy.netns", tlv.value),
                tlv::CRC32C | tlv::NOOP | tlv::SSL => {}
                kind => facts.add(kind, &format!("proxy.tlv-{kind:#04x}"), tlv.value),
            }
        }
        if let Some(ssl) = proxied.tlvs.ssl() {
            facts.add_ssl(ssl.client, ssl.verify, ssl.facts);
        }
        facts
    }

    /// Makes facts that contain only the ends.
    pub fn between(client: SocketAddr, destination: SocketAddr) -> Facts {
        Facts {
            ends: Some((client, destination)),
            ..Facts::default()
        }
    }

    /// The TLVs, without the checksum and padding.
    pub fn tlvs(&self) -> Tlvs<'_> {
        Tlvs::new(&self.tlvs).unwrap_or_default()
    }

    /// Describes a flow, without the TLVs of these types.
    pub fn describe(&self, info: &mut FlowInfo, without: &[u8]) {
        if let Some((source, destination)) = self.ends {
            info.source = source;
            info.destination = destination.into();
        }
        for (kind, name, value) in &self.attributes {
            if !without.contains(kind) {
                info.attributes.push((name.clone(), value.clone()));
            }
        }
        let mut tlvs = Vec::new();
        for tlv in self.tlvs().filter(|tlv| !without.contains(&tlv.kind)) {
            tlv.write(&mut tlvs);
        }
        if !tlvs.is_empty() {
            info.attributes.push(("proxy.tlvs".to_owned(), hex(&tlvs)));
        }
    }

    fn add_ssl(&mut self, client: u8, verify: u32, facts: Tlvs<'_>) {
        if client & CLIENT_SSL == 0 {
            return;
        }
        let mut add = |name: &str, value: &[u8]| self.add(tlv::SSL, name, value);
        if client & (CLIENT_CERT_CONN | CLIENT_CERT_SESS) != 0 {
            add("tls.verified", if verify == 0 { b"yes" } else { b"no" });
        }
        for tlv in facts {
            let known = SSL_ATTRIBUTES.iter().find(|(kind, _)| *kind == tlv.kind);
            match known {
                Some((_, name)) => add(name, tlv.value),
                None => add(&format!("tls.tlv-{:#04x}", tlv.kind), tlv.value),
            }
        }
    }

    /// Adds an attribute: text if it is printable, hexadecimal otherwise.
    fn add(&mut self, kind: u8, name: &str, value: &[u8]) {
        let printable = |text: &&str| !text.chars().any(char::is_control);
        let value = match str::from_utf8(value).ok().filter(printable) {
            Some(text) => text.to_owned(),
            None => hex(value),
        };
        self.attributes.push((kind, name.to_owned(), value));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The client and its destination, if they are IP addresses.
pub fn ends(addresses: &Addresses<'_>) -> Option<(SocketAddr, SocketAddr)> {
    match addresses {
        Addresses::Inet {
            source,
            destination,
        } => Some((canonical(*source), canonical(*destination))),
        Addresses::Unix { .. } => None,
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
