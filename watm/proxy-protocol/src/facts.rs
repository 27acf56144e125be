use std::fmt::Write;
use std::net::SocketAddr;
use std::str;

use watm_core::FlowInfo;

use crate::header::{Addresses, Proxied};
use crate::tlv::{self, Tlvs};

/// What a flow is told with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The client, and where it connected to. An IPv4 address in IPv6 is the IPv4 address.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    attributes: Vec<(String, String)>,
}

impl Facts {
    /// What a header says.
    pub fn of(proxied: &Proxied<'_>) -> Facts {
        let mut facts = Facts {
            ends: ends(&proxied.addresses),
            attributes: Vec::new(),
        };
        if let Addresses::Unix {
            source,
            destination,
        } = proxied.addresses
        {
            facts.add("proxy.unix-source", source);
            facts.add("proxy.unix-destination", destination);
        }
        for tlv in proxied.tlvs {
            match tlv.kind {
                tlv::ALPN => facts.add("alpn", tlv.value),
                tlv::AUTHORITY => facts.add("sni", tlv.value),
                tlv::UNIQUE_ID => facts.add("proxy.unique-id", tlv.value),
                tlv::NETNS => facts.add("proxy.netns", tlv.value),
                tlv::CRC32C | tlv::NOOP | tlv::SSL => {}
                kind => facts.add(&format!("proxy.tlv-{kind:#04x}"), tlv.value),
            }
        }
        if let Some(ssl) = proxied.tlvs.ssl() {
            facts.add_ssl(ssl.client, ssl.verify, ssl.facts);
        }
        facts
    }

    /// Of nothing but its ends.
    pub fn between(client: SocketAddr, destination: SocketAddr) -> Facts {
        Facts {
            ends: Some((client, destination)),
            attributes: Vec::new(),
        }
    }

    /// Tell a flow.
    pub fn describe(&self, info: &mut FlowInfo) {
        if let Some((source, destination)) = self.ends {
            info.source = source;
            info.destination = destination.into();
        }
        info.attributes.extend(self.attributes.iter().cloned());
    }

    fn add_ssl(&mut self, client: u8, verify: u32, facts: Tlvs<'_>) {
        const USED: u8 = 1;
        const CERTIFICATE: u8 = 2 | 4;
        if client & USED == 0 {
            return;
        }
        if client & CERTIFICATE != 0 {
            self.add("tls.verified", if verify == 0 { b"yes" } else { b"no" });
        }
        for tlv in facts {
            match tlv.kind {
                0x21 => self.add("tls.version", tlv.value),
                0x22 => self.add("tls.client-cn", tlv.value),
                0x23 => self.add("tls.cipher", tlv.value),
                0x24 => self.add("tls.signature-algorithm", tlv.value),
                0x25 => self.add("tls.key-algorithm", tlv.value),
                0x26 => self.add("tls.group", tlv.value),
                0x27 => self.add("tls.signature-scheme", tlv.value),
                0x28 => self.add("tls.client-certificate", tlv.value),
                kind => self.add(&format!("tls.tlv-{kind:#04x}"), tlv.value),
            }
        }
    }

    /// As text if it is printable, or else in hexadecimal.
    fn add(&mut self, name: &str, value: &[u8]) {
        let printable = |text: &&str| !text.chars().any(char::is_control);
        let value = match str::from_utf8(value).ok().filter(printable) {
            Some(text) => text.to_owned(),
            None => value.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            }),
        };
        self.attributes.push((name.to_owned(), value));
    }
}

/// The client and where it connected to, if they are of IP.
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
