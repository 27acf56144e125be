//! A connection from a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use rustls::pki_types::UnixTime;
use rustls::{Connection, HandshakeKind};
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
    /// What comes before TLS, and what it said.
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

    /// Whether the network's end is an end like any other.
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
            if matches!(self.decoy, Decoy::Perhaps(_)) {
                return self.pass_on(failure::words(&error), from, application, network);
            }
            if !self.established {
                count(&self.counters.failed);
            }
            return Err(failure::code(&error));
        }
        if !network.is_empty() {
            self.decoy.answer();
        }
        match self.established || self.session.is_handshaking() {
            true => Ok(()),
            false => self.establish(network),
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

    /// Give up TLS, of which nothing was said.
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

    /// The handshake is over.
    fn establish(&mut self, network: &mut Buffer) -> Result<(), ErrorCode> {
        let connection = self.session.connection();
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        // A session is resumed by whoever had a good certificate then; the rules, the date and
        // the roots may be others by now. A decoy's client was not judged at all yet.
        if let Some(gate) = &self.rules.gate
            && let Err(reason) = gate.judge(connection.peer_certificates(), UnixTime::now())
        {
            if !self.rules.decoy {
                count(&self.counters.failed);
                self.session.end(network);
                return Err(ErrorCode::Other(reason));
            }
            count(&self.counters.decoys);
            self.decoy = Decoy::Decrypted(reason);
        }
        match resumed {
            true => count(&self.counters.resumed),
            false => count(&self.counters.full),
        }
        self.established = true;
        Ok(())
    }

    pub fn describe(&self, info: &mut FlowInfo) {
        if let Some(proxy) = &self.proxy {
            proxy.describe(info);
        }
        let mut add = |name: &str, value: String| info.attributes.push((name.to_owned(), value));
        if let Some(reason) = self.decoy.reason() {
            add("decoy", reason.to_owned());
        }
        if self.decoy.is_raw() {
            return;
        }
        let said = Said::of(self.session.connection());
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
        let id = told
            .attributes
            .into_iter()
            .find(|(name, _)| name == "proxy.unique-id");
        let said = Said::of(self.session.connection());
        proxy::header(out, ends.or(proxied), &said, id.map(|(_, id)| id))
    }
}

/// Stands for an address that is not known.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a handshake has told.
pub struct Said {
    pub name: Option<String>,
    pub protocol: Option<Vec<u8>>,
    pub version: Option<&'static str>,
    pub cipher: Option<String>,
    pub group: Option<String>,
    pub resumed: bool,
    /// With its bytes.
    pub client: Option<(Vec<u8>, Facts)>,
}

impl Said {
    fn of(connection: &Connection) -> Said {
        let name = match connection {
            Connection::Server(server) => server.server_name().map(str::to_owned),
            Connection::Client(_) => None,
        };
        let client = connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .and_then(|shown| Some((shown.to_vec(), Facts::of(shown).ok()?)));
        Said {
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

/// Bytes of a stranger's as text: in hexadecimal unless they are printable.
fn text(bytes: &[u8]) -> String {
    let printable = |text: &&str| !text.chars().any(char::is_control);
    match std::str::from_utf8(bytes).ok().filter(printable) {
        Some(text) => text.to_owned(),
        None => facts::hex(bytes),
    }
}
