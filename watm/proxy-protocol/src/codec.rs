//! The codec of connections, and the transport's configuration. Used by `transport`.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::{ConfigError, Destination, ErrorCode, FlowInfo};
use watm_proxy_header::{Protocol, Tlvs, write_v1, write_v2};
use watm_stream::{Buffer, Codec, Limits, StreamTransport};

use crate::account::{Account, Event};
use crate::config::{Config, Version};
use crate::facts::Facts;
use crate::header::Header;
use crate::parse::{Parsed, parse};
use crate::reason::Reason;

/// The PROXY protocol over connections. Its configuration has the fields in [`FIELDS`](crate::FIELDS).
///
/// Without `from` no header is trusted, and no connection is accepted. WATER hosts tell no addresses, so that only `any`
/// admits connections there. The list is checked for each connection and each datagram, so that a new configuration
/// applies at once.
///
/// With `datagrams` as `each`, every datagram has a header of version 2 (revision of 2026-04-27). With `first`, the first
/// datagram from an address of the proxy has one, for all datagrams from that address until it has been idle for
/// `datagram-idle`. A client's datagrams may come from up to eight addresses of the proxy. With `spp`, every datagram has
/// the 38 bytes of Cloudflare's Simple Proxy Protocol, and so do the answers.
///
/// The TLVs become attributes of a flow: `alpn`, `sni`, `tls.…`, `proxy.unique-id`, `proxy.netns`,
/// and `proxy.tlv-0x…` for other types, as text if they are printable and in hexadecimal otherwise.
/// `proxy.tlvs` has all of them as received, in hexadecimal, without the checksum and padding: a
/// host forwards these.
#[derive(Debug)]
pub struct ProxyProtocol {
    config: Rc<Config>,
    account: Rc<Account>,
}

/// The codec of a connection: first a header, then unchanged bytes.
#[derive(Debug)]
pub struct ProxyCodec(State);

#[derive(Debug)]
enum State {
    /// Accepting, with the header still to come from this address.
    Accepting(Rc<Config>, Rc<Account>, Option<SocketAddr>),
    /// Accepted, with the header's facts, and the client whose bytes are counted, if known.
    Accepted(Facts, Rc<Account>, Option<IpAddr>),
    /// Dialling, with this header to send.
    Dialling(Vec<u8>),
    Dialled,
}

impl StreamTransport for ProxyProtocol {
    type Codec = ProxyCodec;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        Ok(ProxyProtocol {
            config: Rc::new(Config::parse(config)?),
            account: Rc::default(),
        })
    }

    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        self.config = Rc::new(Config::parse(config)?);
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits {
            handshake: self.config.header_time,
            ..Limits::default()
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.account.named()
    }

    fn accept(&self, remote: Option<SocketAddr>) -> Result<ProxyCodec, ErrorCode> {
        if !self.config.from.admit(remote) {
            self.account.refused(Reason::Source);
            return Err(ErrorCode::AccessDenied);
        }
        let state = State::Accepting(self.config.clone(), self.account.clone(), remote);
        Ok(ProxyCodec(state))
    }

    fn dial(&self, _destination: Option<&Destination>) -> Result<ProxyCodec, ErrorCode> {
        let header = match self.config.send {
            Version::One => Some(write_v1(self.config.ends)),
            Version::Two => write_v2(Protocol::Stream, self.config.ends, &[]),
        };
        // A header without TLVs always fits.
        let header = header.ok_or(ErrorCode::InvalidState)?;
        Ok(ProxyCodec(State::Dialling(header)))
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.or(self.config.remote.as_ref()).cloned()
    }
}

impl ProxyProtocol {
    /// The configuration.
    pub(crate) fn config(&self) -> &Rc<Config> {
        &self.config
    }

    /// The counters.
    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.account
    }
}

impl ProxyCodec {
    /// Like [`describe`](Codec::describe), without the TLVs of these types.
    pub fn describe_without(&self, types: &[u8], info: &mut FlowInfo) {
        if let State::Accepted(facts, ..) = &self.0 {
            facts.describe(info, types);
        }
    }

    /// The TLVs of the header, without its checksum and padding. Empty before it has arrived.
    pub fn tlvs(&self) -> Tlvs<'_> {
        match &self.0 {
            State::Accepted(facts, ..) => facts.tlvs(),
            _ => Tlvs::default(),
        }
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
        !matches!(self.0, State::Accepting(..))
    }

    fn describe(&self, info: &mut FlowInfo) {
        self.describe_without(&[], info);
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        if let State::Accepting(config, account, remote) = &self.0 {
            let header = match header(from.bytes(), config) {
                Ok(header) => header,
                Err(reason) => {
                    account.refused(reason);
                    return Err(ErrorCode::Other(reason.to_string()));
                }
            };
            let Some((length, facts)) = header else {
                return Ok(());
            };
            from.consume(length);
            account.count(Event::Connection);
            let client = facts.ends.map(|(client, _)| client).or(*remote);
            self.0 = State::Accepted(facts, account.clone(), client.map(|client| client.ip()));
        }
        if let State::Accepted(_, account, Some(client)) = &self.0 {
            account.bytes(*client, from.len(), 0);
        }
        application.append(from);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        if let State::Accepted(_, account, Some(client)) = &self.0 {
            account.bytes(*client, 0, from.len());
        }
        network.append(from);
        Ok(())
    }
}

/// Parses the header of a connection once it is complete. Returns its length and its facts.
fn header(bytes: &[u8], config: &Config) -> Result<Option<(usize, Facts)>, Reason> {
    let Parsed::Complete(length, header) = parse(bytes, &config.rules)? else {
        return Ok(None);
    };
    let facts = match header {
        Header::Local if config.local => Facts::default(),
        Header::Local => return Err(Reason::Local),
        Header::Proxied(proxied) if proxied.protocol == Protocol::Datagram => {
            return Err(Reason::Protocol);
        }
        Header::Proxied(proxied) => Facts::of(&proxied),
    };
    Ok(Some((length, facts)))
}
