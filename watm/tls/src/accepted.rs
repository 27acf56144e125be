//! The codec of a connection from a client. Used by `codec`, `proxy` and `transport`.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use rustls::pki_types::UnixTime;
use rustls::{Connection, Error, HandshakeKind};
use watm_core::{ErrorCode, FlowInfo};
use watm_proxy_protocol::ProxyCodec;
use watm_stream::{Buffer, Codec};

use crate::decoy::Decoy;
use crate::facts::{self, Facts};
use crate::session::Session;
use crate::transport::{Counters, Rules, count};
use crate::{failure, proxy};

pub struct Accepted {
    session: Session,
    /// The codec of the PROXY header before TLS, with the header's facts.
    proxy: Option<ProxyCodec>,
    rules: Rc<Rules>,
    counters: Rc<Counters>,
    decoy: Decoy,
    established: bool,
}

impl Accepted {
    pub fn new(
        session: Session,
        proxy: Option<ProxyCodec>,
        rules: Rc<Rules>,
        counters: Rc<Counters>,
    ) -> Accepted {
        let decoy = match rules.decoy {
            true => Decoy::Perhaps(Vec::new()),
            false => Decoy::Never,
        };
        Accepted {
            session,
            proxy,
            rules,
            counters,
            decoy,
            established: false,
        }
    }

    pub fn is_established(&self) -> bool {
        self.established
    }

    pub fn has_ended_inward(&self) -> bool {
        !self.decoy.is_raw() && self.session.has_ended()
    }

    /// Returns true if the network's stream may end without `close_notify`.
    pub fn may_end(&self) -> bool {
        self.decoy.is_raw()
    }

    pub fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        if let Some(proxy) = &mut self.proxy
            && !proxy.established()
        {
            let mut rest = Buffer::default();
            proxy.inward(from, &mut rest, network)?;
            from.append(&mut rest);
            if !proxy.established() {
                return Ok(());
            }
        }
        if self.decoy.is_raw() {
            application.append(from);
            return Ok(());
        }
        if self.decoy.hear(from) {
            return self.pass_on("not TLS".to_owned(), from, application, network);
        }
        if let Err(error) = self.session.receive(from, application, network) {
            let reason = match names_nobody(&error, network) {
                true => self.unknown_name(),
                false => failure::words(&error),
            };
            if matches!(self.decoy, Decoy::Perhaps(_)) {
                return self.pass_on(reason, from, application, network);
            }
            if !self.established {
                count(&self.counters.failed);
            }
            return Err(ErrorCode::Other(reason));
        }
        if !network.is_empty() {
            self.decoy.answer();
        }
        match self.established || self.session.is_handshaking() {
            true => Ok(()),
            false => {
                self.establish();
                Ok(())
            }
        }
    }

    pub fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        if self.decoy.is_raw() {
            network.append(from);
            return Ok(());
        }
        self.session
            .send(from, network)
            .map_err(|error| failure::code(&error))
    }

    pub fn end_outward(&mut self, network: &mut Buffer) {
        if !self.decoy.is_raw() {
            self.session.end(network);
        }
    }

    fn unknown_name(&self) -> String {
        match self.session.connection() {
            Connection::Server(server) if let Some(name) = server.server_name() => {
                format!("no certificate matches the name {name} (SNI) that the client requested")
            }
            _ => "the client sent no name (SNI), and \"no-match\" is \"abort\"".to_owned(),
        }
    }

    /// Give up TLS before anything was answered, and pass the raw bytes to the decoy.
    fn pass_on(
        &mut self,
        reason: String,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        from.clear();
        network.clear();
        self.decoy.reveal(|| reason, application);
        self.established = true;
        count(&self.counters.decoys);
        Ok(())
    }

    /// Handle the end of the handshake.
    fn establish(&mut self) {
        let connection = self.session.connection();
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        // Other clients were judged in the handshake, or when their tickets were read.
        if let Some(gate) = self.rules.gate.as_ref().filter(|_| self.rules.decoy)
            && let Err(reason) = gate.judge(connection.peer_certificates(), UnixTime::now())
        {
            count(&self.counters.decoys);
            self.decoy = Decoy::Decrypted(reason);
        }
        match resumed {
            true => count(&self.counters.resumed),
            false => count(&self.counters.full),
        }
        self.established = true;
    }

    pub fn describe(&self, info: &mut FlowInfo) {
        if let Some(proxy) = &self.proxy {
            let replaced: &[u8] = match self.decoy.is_raw() {
                true => &[],
                false => &proxy::OWN,
            };
            proxy.describe_without(replaced, info);
        }
        let mut add = |name: &str, value: String| info.attributes.push((name.to_owned(), value));
        if let Some(reason) = self.decoy.reason() {
            add("decoy", reason.to_owned());
        }
        if self.decoy.is_raw() {
            return;
        }
        let said = HandshakeFacts::of(self.session.connection());
        let resumed = if said.resumed { "yes" } else { "no" };
        for (name, value) in [
            ("sni", said.name.clone()),
            ("alpn", said.protocol.as_deref().map(text)),
            ("tls.version", said.version.map(str::to_owned)),
            ("tls.cipher", said.cipher.clone()),
            ("tls.group", said.group.clone()),
            ("tls.resumed", Some(resumed.to_owned())),
        ] {
            if let Some(value) = value {
                add(name, value);
            }
        }
        let Some((certificate, client)) = &said.client else {
            return;
        };
        let verified = self.decoy.reason().is_none();
        add(
            "tls.verified",
            (if verified { "yes" } else { "no" }).to_owned(),
        );
        if let Some(name) = &client.common_name {
            add("tls.client-cn", text(name.as_bytes()));
        }
        for name in client.alternatives() {
            add("tls.client-san", text(name.as_bytes()));
        }
        add("tls.client-key", facts::pin(&client.key));
        add("tls.client-certificate", facts::hex(certificate));
        if verified {
            let name = client.common_name.clone();
            let name = name.or_else(|| client.alternatives().into_iter().next());
            info.peer =
                Some(name.map_or_else(|| facts::pin(&client.key), |name| text(name.as_bytes())));
        }
    }

    pub fn introduce(&self, ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
        let Some(out) = self
            .rules
            .proxy_out
            .filter(|_| self.decoy.reason().is_none())
        else {
            return Vec::new();
        };
        let mut told = FlowInfo {
            source: NOBODY,
            destination: NOBODY.into(),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        if let Some(proxy) = &self.proxy {
            proxy.describe(&mut told);
        }
        let proxied = match told.destination {
            watm_core::Destination::Address(destination) if told.source != NOBODY => {
                Some((told.source, destination))
            }
            _ => None,
        };
        let came = self.proxy.as_ref().map(ProxyCodec::tlvs);
        let said = HandshakeFacts::of(self.session.connection());
        proxy::header(out, ends.or(proxied), &said, came.unwrap_or_default())
    }
}

/// The record with the alert that rustls sends if there is no certificate for a client.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// The alert for an unknown server name (RFC 6066, section 3).
const UNRECOGNIZED_NAME: u8 = 112;

/// Returns true if a handshake has failed because no certificate has the name that the client asks
/// for. Changes the alert to the client accordingly.
fn names_nobody(error: &Error, network: &mut Buffer) -> bool {
    let at_end = network.len().saturating_sub(ACCESS_DENIED.len());
    match (error, &mut network.bytes_mut()[at_end..]) {
        (Error::General(_), alert) if alert == ACCESS_DENIED => {
            alert[ACCESS_DENIED.len() - 1] = UNRECOGNIZED_NAME;
            true
        }
        _ => false,
    }
}

/// The placeholder for an unknown address.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The results of a handshake.
pub struct HandshakeFacts {
    pub name: Option<String>,
    pub protocol: Option<Vec<u8>>,
    pub version: Option<&'static str>,
    pub cipher: Option<String>,
    pub group: Option<String>,
    pub resumed: bool,
    /// The client's certificate in DER, and its facts.
    pub client: Option<(Vec<u8>, Facts)>,
}

impl HandshakeFacts {
    fn of(connection: &Connection) -> HandshakeFacts {
        let name = match connection {
            Connection::Server(server) => server.server_name().map(str::to_owned),
            Connection::Client(_) => None,
        };
        let client = connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .and_then(|shown| Some((shown.to_vec(), Facts::of(shown).ok()?)));
        HandshakeFacts {
            name,
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            version: connection.protocol_version().map(facts::version),
            cipher: connection
                .negotiated_cipher_suite()
                .map(|suite| facts::suite(suite.suite())),
            group: connection
                .negotiated_key_exchange_group()
                .map(|group| format!("{:?}", group.name())),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            client,
        }
    }
}

/// Converts bytes from a stranger to text: hexadecimal unless they are printable.
fn text(bytes: &[u8]) -> String {
    let printable = |text: &&str| !text.chars().any(char::is_control);
    match std::str::from_utf8(bytes).ok().filter(printable) {
        Some(text) => text.to_owned(),
        None => facts::hex(bytes),
    }
}
