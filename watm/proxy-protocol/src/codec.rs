use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::{ConfigError, Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec, Limits, StreamTransport};

use crate::account::{Account, Event};
use crate::config::{Config, Version};
use crate::facts::Facts;
use crate::header::{Header, Protocol};
use crate::parse::{Parsed, parse};
use crate::reason::Reason;
use crate::tlv::Tlvs;
use crate::write::{write_v1, write_v2};

/// The transport. Its configuration:
///
/// - `from`: whose headers are believed, as addresses and networks, or `any`. Without it
///   nobody's are, and no connection is accepted. A host of WATER tells no addresses, so that
///   nothing but `any` admits anybody there. It is looked at for each connection and each
///   datagram, so that another configuration holds at once.
/// - `accept`: `v1`, `v2` or both, which is the default.
/// - `longest`: bytes of a header of version 2, 536 by default, at most 4096.
/// - `unspecified`: what to do with version 2's PROXY without addresses: `refuse`, or take it
///   for `local`.
/// - `local`: whether to `accept` what says LOCAL or UNKNOWN, as health checks do, as the sender's
///   own, which is the default, or to `refuse` it.
/// - `header-time`: seconds that a header may take, 5 by default, from 3 on.
/// - `datagrams`: what datagrams begin with. `each`, the default: every one with a header of
///   version 2 (revision of 2026-04-27). `first`: the first one from an address of the proxy's, for
///   all that come from it until nothing has come from there or gone there for `datagram-idle`. A
///   client may come from up to eight addresses of the proxy's. `spp`: every one with
///   the 38 bytes of Cloudflare's Simple Proxy Protocol, as do the answers.
/// - `datagram-idle`: seconds after which a client's datagrams are no longer one flow, 60 by default.
/// - `datagram-flows`: flows of datagrams at once, 16384 by default. For one more, that ends which
///   was idle longest.
/// - `send`: the version of the header that dialled connections begin with, `v2` by default.
/// - `source` and `destination`: what that says, LOCAL or UNKNOWN without them.
/// - `remote`: where a connection is dialled to whose caller says nothing.
///
/// A flow has what the TLVs say as attributes: `alpn`, `sni`, `tls.…`, `proxy.unique-id`, `proxy.netns`,
/// and `proxy.tlv-0x…` for other types, as text where they are printable and else in hexadecimal.
/// `proxy.tlvs` has all of them as they came, in hexadecimal, without the checksum and padding: a host
/// passes these on.
#[derive(Debug)]
pub struct ProxyProtocol {
    config: Rc<Config>,
    account: Rc<Account>,
}

/// A connection: first a header, then nothing else.
#[derive(Debug)]
pub struct ProxyCodec(State);

#[derive(Debug)]
enum State {
    /// The header is to come, from here.
    Accepting(Rc<Config>, Rc<Account>, Option<SocketAddr>),
    /// It has come, and said this; whose bytes to count, where that is known.
    Accepted(Facts, Rc<Account>, Option<IpAddr>),
    /// The header is to be sent.
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

impl ProxyProtocol {
    /// What it is configured with.
    pub(crate) fn config(&self) -> &Rc<Config> {
        &self.config
    }

    /// What it counts.
    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.account
    }
}

impl ProxyCodec {
    /// As [`describe`](Codec::describe), without what TLVs of these types say.
    pub fn describe_without(&self, types: &[u8], info: &mut FlowInfo) {
        if let State::Accepted(facts, ..) = &self.0 {
            facts.describe(info, types);
        }
    }

    /// The TLVs of the header, without its checksum and padding. None before it has come.
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

/// The header of a connection, once all of it is there: its length, and what it says.
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
