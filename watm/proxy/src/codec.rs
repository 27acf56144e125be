use std::fmt::Write;
use std::net::SocketAddr;
use std::str;

use watm_core::{ConfigError, Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec, StreamTransport};

use crate::config::{Config, Version};
use crate::header::{Addresses, Header, Protocol, Proxied};
use crate::parse::{Parsed, Rules, parse};
use crate::tlv::{self, Tlvs};
use crate::write::{write_v1, write_v2};

/// The transport. Its configuration:
///
/// - `from`: whose headers are believed, as addresses and networks, or `any`. Without it
///   nobody's are, and no connection is accepted. A host of WATER tells no addresses, so that
///   nothing but `any` admits anybody there.
/// - `accept`: `v1`, `v2` or both, which is the default.
/// - `longest`: bytes of a header of version 2, 536 by default, at most 4096.
/// - `unspecified`: what to do with version 2's PROXY without addresses: `refuse`, or take it
///   for `local`.
/// - `send`: the version of the header that dialled connections begin with, `v2` by default.
/// - `source` and `destination`: what that says, LOCAL or UNKNOWN without them.
/// - `remote`: where a connection is dialled to whose caller says nothing.
#[derive(Debug)]
pub struct ProxyProtocol {
    config: Config,
}

/// A connection: first a header, then nothing else.
#[derive(Debug)]
pub struct ProxyCodec(State);

#[derive(Debug)]
enum State {
    /// The header is to come.
    Accepting(Rules),
    /// It has come, and said this.
    Accepted(Facts),
    /// The header is to be sent.
    Dialling(Vec<u8>),
    Dialled,
}

/// What a flow is told with.
#[derive(Debug, Default)]
struct Facts {
    ends: Option<(SocketAddr, SocketAddr)>,
    attributes: Vec<(String, String)>,
}

impl StreamTransport for ProxyProtocol {
    type Codec = ProxyCodec;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        Config::parse(config).map(|config| ProxyProtocol { config })
    }

    fn accept(&self, remote: Option<SocketAddr>) -> Result<ProxyCodec, ErrorCode> {
        match self.config.from.admit(remote) {
            true => Ok(ProxyCodec(State::Accepting(self.config.rules))),
            false => Err(ErrorCode::AccessDenied),
        }
    }

    fn dial(&self, _destination: Option<&Destination>) -> Result<ProxyCodec, ErrorCode> {
        let header = match self.config.send {
            Version::One => Some(write_v1(self.config.ends)),
            Version::Two => write_v2(self.config.ends, &[]),
        };
        // Without facts it fits.
        let header = header.ok_or(ErrorCode::InvalidState)?;
        Ok(ProxyCodec(State::Dialling(header)))
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.or(self.config.remote.as_ref()).cloned()
    }
}

impl Codec for ProxyCodec {
    fn begin(&mut self, network: &mut Buffer) {
        if let State::Dialling(header) = &self.0 {
            network.extend(header);
            self.0 = State::Dialled;
        }
    }

    fn established(&self) -> bool {
        !matches!(self.0, State::Accepting(_))
    }

    fn describe(&self, info: &mut FlowInfo) {
        let State::Accepted(facts) = &self.0 else {
            return;
        };
        if let Some((source, destination)) = facts.ends {
            info.source = source;
            info.destination = destination.into();
        }
        info.attributes.extend(facts.attributes.iter().cloned());
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        if let State::Accepting(rules) = &self.0 {
            let refused = |why: &dyn std::fmt::Display| ErrorCode::Other(why.to_string());
            let parsed = parse(from.bytes(), rules).map_err(|why| refused(&why))?;
            let Parsed::Complete(length, header) = parsed else {
                return Ok(());
            };
            let facts = match header {
                Header::Local => Facts::default(),
                Header::Proxied(proxied) if proxied.protocol == Protocol::Datagram => {
                    return Err(refused(&"the header of a datagram, in a stream"));
                }
                Header::Proxied(proxied) => Facts::of(&proxied),
            };
            from.consume(length);
            self.0 = State::Accepted(facts);
        }
        application.append(from);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}

impl Facts {
    fn of(proxied: &Proxied<'_>) -> Facts {
        let mut facts = Facts::default();
        match proxied.addresses {
            Addresses::Inet {
                source,
                destination,
            } => facts.ends = Some((source, destination)),
            Addresses::Unix {
                source,
                destination,
            } => {
                facts.add("proxy.unix-source", source);
                facts.add("proxy.unix-destination", destination);
            }
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
