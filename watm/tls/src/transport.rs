//! The transport: the configuration and state that all connections share. Used by `accepted` and
//! `dialled`.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use watm_core::{ConfigError, Destination, ErrorCode};
use watm_stream::{Limits, StreamTransport};

use crate::accepted::Accepted;
use crate::certificates::{Certificates, certified, is_slow};
use crate::clients::Gate;
use crate::codec::TlsCodec;
use crate::config::{Config, ProxyOut, Served, Server, field};
use crate::dialled::Dialled;
use crate::servers::Judge;
use crate::session::Session;
use crate::staple::{Validity, Window};
use crate::tickets::{SECRET, Tickets};
use crate::{facts, failure};

/// The beginning of a snapshot: the format and its version. A secret follows.
const SNAPSHOT: &[u8] = b"watm-tls\x01";

/// The amount of 0-RTT data that is tried and skipped, in bytes (RFC 8446, section 4.2.10). A
/// client sends some to a name for which it has the session of another server, mostly up to 16 KiB;
/// rustls holds 18 KiB. rustls counts its held bytes again whenever more arrive, so that this is a
/// multiple of them.
const SKIPPED_EARLY_DATA: u32 = 1 << 20;

/// TLS. The crate's documentation describes its configuration.
#[derive(Debug)]
pub struct Tls {
    config: Config,
    /// The secret for tickets, if none is configured.
    secret: [u8; SECRET],
    accepting: Option<Accepting>,
    dialling: Option<Arc<ClientConfig>>,
    counters: Rc<Counters>,
    /// The time at which the first valid OCSP response expires, in seconds since 1970.
    staples_until: Option<u64>,
}

#[derive(Debug)]
struct Accepting {
    config: Arc<ServerConfig>,
    rules: Rc<Rules>,
}

/// The rules for accepted connections.
#[derive(Debug)]
pub struct Rules {
    pub gate: Option<Arc<Gate>>,
    pub decoy: bool,
    pub proxy_out: Option<ProxyOut>,
}

/// The outcomes of handshakes.
#[derive(Debug, Default)]
pub struct Counters {
    pub full: Cell<u64>,
    pub resumed: Cell<u64>,
    pub failed: Cell<u64>,
    pub decoys: Cell<u64>,
}

/// Adds one to a counter.
pub fn count(counter: &Cell<u64>) {
    counter.set(counter.get().saturating_add(1));
}

impl Tls {
    fn assemble(
        config: Config,
        secret: [u8; SECRET],
        counters: Rc<Counters>,
    ) -> Result<Tls, ConfigError> {
        let accepting = match &config.served {
            Some(served) => Some(Accepting::new(&config, served, &secret)?),
            None => None,
        };
        let dialling = dialling(&config)?;
        let mut tls = Tls {
            config,
            secret,
            accepting,
            dialling,
            counters,
            staples_until: None,
        };
        tls.staples_until = tls.next_late(UnixTime::now().as_secs());
        Ok(tls)
    }

    /// The validity of each OCSP response, with the path of its certificate in the configuration.
    fn staples(&self) -> impl Iterator<Item = (&str, Window)> {
        let served = self.config.served.iter();
        let certificates = served.flat_map(|served| &served.certificates);
        certificates.filter_map(|certificate| {
            let staple = certificate.staple.as_ref()?;
            Some((certificate.field.as_str(), staple.window))
        })
    }

    fn next_late(&self, now: u64) -> Option<u64> {
        let until = self.staples().map(|(_, window)| window.until);
        until.filter(|until| *until >= now).min()
    }

    /// The warnings about OCSP responses that clients do not get.
    fn bad_staples(&self) -> Vec<String> {
        let now = UnixTime::now().as_secs();
        let why = |window: Window| match window.validity(now) {
            Validity::Early => {
                Some("the OCSP response is not valid yet and is not sent to clients until then")
            }
            Validity::Late => Some("the OCSP response is out of date and is not sent to clients"),
            Validity::Good => None,
        };
        self.staples()
            .filter_map(|(place, window)| Some(format!("{place}.ocsp: {}", why(window)?)))
            .collect()
    }

    /// The warnings about certificate revocation lists past their next update.
    fn stale_crls(&self) -> Vec<String> {
        let clients = self.config.served.iter().flat_map(|served| &served.clients);
        let (now, mut stale) = (UnixTime::now().as_secs(), Vec::new());
        for clients in clients {
            let late = clients
                .crls
                .iter()
                .filter(|list| facts::is_stale(list, now));
            let then = match clients.stale_crls {
                true => "it is still used",
                false => "clients of its issuer are refused",
            };
            stale.extend(late.map(|_| format!("clients.crls: a list is out of date; {then}")));
        }
        stale
    }

    /// The name that a server is asked for.
    fn name(&self, destination: Option<&Destination>) -> Result<ServerName<'static>, ErrorCode> {
        if let Some(name) = &self.config.server.name {
            return Ok(name.clone());
        }
        let missing =
            || ErrorCode::Other("server.name: missing; set it, or connect to a name".to_owned());
        match destination.or(self.config.server.remote.as_ref()) {
            Some(Destination::Address(address)) => Ok(ServerName::from(address.ip())),
            Some(Destination::Name(name, _)) => {
                ServerName::try_from(name.clone()).map_err(|_| missing())
            }
            None => Err(missing()),
        }
    }
}

impl Accepting {
    fn new(config: &Config, served: &Served, secret: &[u8]) -> Result<Accepting, ConfigError> {
        let provider = &config.provider;
        let gate = served
            .clients
            .as_ref()
            .map(|clients| Gate::new(clients, provider, served.decoy).map(Arc::new))
            .transpose()
            .map_err(|why| match served.clients.as_ref() {
                Some(clients) if !clients.crls.is_empty() => field("clients.crls", why),
                _ => field("clients.roots", why),
            })?;
        let builder = ServerConfig::builder_with_details(provider.clone(), time())
            .with_protocol_versions(&config.versions)
            .map_err(|error| field("ciphers", error.to_string()))?;
        let builder = match &gate {
            Some(gate) => builder.with_client_cert_verifier(gate.clone()),
            None => builder.with_client_cert_verifier(Arc::new(NoClientAuth)),
        };
        let certificates = Certificates::new(&served.certificates, served.fall_back, provider)?;
        let mut server = builder.with_cert_resolver(Arc::new(certificates));
        server.ignore_client_order = true;
        server.alpn_protocols = served.alpn.clone();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        // Early data is never accepted: rustls does not accept it with tickets, and without them no
        // session is resumed. The number only limits how much is skipped.
        server.max_early_data_size = SKIPPED_EARLY_DATA;
        match &served.tickets {
            Some(options) => {
                let secret = options.secret.as_deref().unwrap_or(secret);
                let tickets = Tickets::new(secret, options.hours, gate.clone());
                server.ticketer = Arc::new(tickets);
            }
            None => server.send_tls13_tickets = 0,
        }
        let rules = Rules {
            gate,
            decoy: served.decoy,
            proxy_out: served.proxy_out,
        };
        Ok(Accepting {
            config: Arc::new(server),
            rules: Rc::new(rules),
        })
    }
}

/// The configuration of dialled connections. `None` if there are neither roots nor pins.
fn dialling(config: &Config) -> Result<Option<Arc<ClientConfig>>, ConfigError> {
    let Server {
        remote,
        roots,
        pins,
        verify,
        alpn,
        certificate,
        ..
    } = &config.server;
    let provider = &config.provider;
    if roots.is_none() && pins.is_empty() {
        return match remote {
            Some(_) => Err(field(
                "server.roots",
                "missing; roots or pins are needed to verify the server",
            )),
            None => Ok(None),
        };
    }
    let judge = Judge::new(roots.as_ref(), pins, verify.clone(), provider)
        .map_err(|why| field("server.roots", why))?;
    let builder = ClientConfig::builder_with_details(provider.clone(), time())
        .with_protocol_versions(&config.versions)
        .map_err(|error| field("ciphers", error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(judge));
    let mut client = match certificate {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let certified = certified(shown, provider)?;
            let resolver = SingleCertAndKey::from(CertifiedKey::clone(&certified));
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    };
    client.alpn_protocols = alpn.clone();
    Ok(Some(Arc::new(client)))
}

fn time() -> Arc<DefaultTimeProvider> {
    Arc::new(DefaultTimeProvider)
}

impl StreamTransport for Tls {
    type Codec = TlsCodec;

    fn configure(config: &[u8]) -> Result<Tls, ConfigError> {
        let mut secret = [0; SECRET];
        SystemRandom::new().fill(&mut secret).map_err(|_| {
            ConfigError::Other("the host's random number generator failed".to_owned())
        })?;
        Tls::assemble(Config::parse(config)?, secret, Rc::default())
    }

    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        let config = Config::parse(config)?;
        *self = Tls::assemble(config, self.secret, self.counters.clone())?;
        Ok(())
    }

    fn check_accepting(&self) -> Result<(), ConfigError> {
        match &self.config.served {
            Some(_) => Ok(()),
            None => Err(ConfigError::Field(
                "certificates".to_owned(),
                "missing; a server needs one or more, each with chain and key".to_owned(),
            )),
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        [SNAPSHOT, &self.secret].concat()
    }

    fn succeed(&mut self, snapshot: &[u8]) {
        let secret = snapshot.strip_prefix(SNAPSHOT);
        let Some(secret) = secret.and_then(|secret| secret.try_into().ok()) else {
            return;
        };
        self.secret = secret;
        if let (Some(served), Some(accepting)) = (&self.config.served, &mut self.accepting)
            && let Some(options) = &served.tickets
            && options.secret.is_none()
        {
            let gate = accepting.rules.gate.clone();
            let tickets = Tickets::new(&self.secret, options.hours, gate);
            Arc::make_mut(&mut accepting.config).ticketer = Arc::new(tickets);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let served = self.config.served.iter();
        let certificates = served.flat_map(|served| &served.certificates);
        certificates
            .flat_map(|certificate| {
                let provider: &CryptoProvider = &self.config.provider;
                let now = UnixTime::now().as_secs();
                let slow = is_slow(certificate, provider).then(|| {
                    format!(
                        "{}.key: an RSA key takes 30 times the CPU time of a P-256 key for each \
                         connection",
                        certificate.field
                    )
                });
                let late = facts::is_out_of_date(&certificate.chain[0], now).then(|| {
                    format!(
                        "{}.chain: the certificate is not valid now",
                        certificate.field
                    )
                });
                [slow, late]
            })
            .flatten()
            .chain(self.stale_crls())
            .chain(self.bad_staples())
            .collect()
    }

    fn news(&mut self) -> Vec<String> {
        let Some(until) = self.staples_until else {
            return Vec::new();
        };
        let now = UnixTime::now().as_secs();
        if now <= until {
            return Vec::new();
        }
        let late = self
            .staples()
            .filter(|(_, window)| (until..now).contains(&window.until))
            .map(|(place, _)| {
                format!(
                    "{place}.ocsp: the OCSP response is now out of date and is no longer sent to \
                     clients"
                )
            })
            .collect();
        self.staples_until = self.next_late(now);
        late
    }

    fn limits(&self) -> Limits {
        self.config.limits
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tls.handshakes", self.counters.full.get()),
            ("tls.resumed", self.counters.resumed.get()),
            ("tls.failed", self.counters.failed.get()),
            ("tls.decoys", self.counters.decoys.get()),
        ]
    }

    fn accept(&self, remote: Option<SocketAddr>) -> Result<TlsCodec, ErrorCode> {
        let (Some(accepting), Some(served)) = (&self.accepting, &self.config.served) else {
            return Err(ErrorCode::Other(
                "certificates: missing; accepting connections needs at least one".to_owned(),
            ));
        };
        let proxy = served.proxy_in.as_ref();
        let proxy = proxy.map(|proxy| proxy.accept(remote)).transpose()?;
        let connection = ServerConnection::new(accepting.config.clone());
        Ok(TlsCodec::accepted(Accepted::new(
            Session::new(connection.map_err(|error| failure::code(&error))?),
            proxy,
            accepting.rules.clone(),
            self.counters.clone(),
        )))
    }

    fn dial(&self, destination: Option<&Destination>) -> Result<TlsCodec, ErrorCode> {
        let Some(config) = &self.dialling else {
            return Err(ErrorCode::Other(
                "server.roots: missing; roots or pins are needed to verify the server".to_owned(),
            ));
        };
        let name = self.name(destination)?;
        let connection = ClientConnection::new(config.clone(), name);
        Ok(TlsCodec::dialled(Dialled::new(
            Session::new(connection.map_err(|error| failure::code(&error))?),
            self.counters.clone(),
        )))
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.or(self.config.server.remote.as_ref()).cloned()
    }
}
