//! The checked configuration. Used by `certificates`, `proxy` and `transport`.

pub mod fields;
mod json;
mod pem;

use std::str;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{RootCertStore, SupportedProtocolVersion};
use watm_core::{ConfigError, Destination};
use watm_proxy_protocol::ProxyProtocol;
use watm_stream::{Limits, StreamTransport};

use self::fields::{OF_LIMITS, OF_TICKETS};
use crate::clients::{Allow, Clients, Wanted};
use crate::facts;
use crate::groups::X25519MLKEM768;
use crate::keys::Key;
use crate::names;
use crate::records;
use crate::staple::Staple;

/// The least length of a secret for tickets, in bytes.
const SECRET: usize = 32;

/// The most protocols that one side may offer (RFC 7301).
const ALPN_MOST: usize = 32;

/// The whole configuration, as it is used.
#[derive(Debug)]
pub struct Config {
    pub provider: Arc<CryptoProvider>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub limits: Limits,
    /// The settings of accepted connections, if certificates are configured.
    pub served: Option<Served>,
    pub server: Server,
}

/// The settings of accepted connections.
#[derive(Debug)]
pub struct Served {
    pub certificates: Vec<Certificate>,
    /// True if a client that asks for another name gets the first certificate.
    pub fall_back: bool,
    pub alpn: Vec<Vec<u8>>,
    pub clients: Option<Clients>,
    pub tickets: Option<TicketOptions>,
    pub decoy: bool,
    pub proxy_in: Option<ProxyProtocol>,
    pub proxy_out: Option<ProxyOut>,
}

/// A certificate for servers or clients.
#[derive(Debug)]
pub struct Certificate {
    /// The path of its field in the configuration.
    pub field: String,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: Key,
    /// The issuer's OCSP response.
    pub staple: Option<Staple>,
    /// The names in lower case.
    pub names: Vec<String>,
}

#[derive(Debug)]
pub struct TicketOptions {
    /// The secret. `None`: a new one is made.
    pub secret: Option<Vec<u8>>,
    pub hours: u32,
}

/// The PROXY header for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyOut {
    pub version: Version,
    /// True if the client's certificate is included.
    pub certificate: bool,
    pub unique_id: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// The settings of dialled connections.
#[derive(Debug, Default)]
pub struct Server {
    pub remote: Option<Destination>,
    pub name: Option<ServerName<'static>>,
    pub verify: Option<ServerName<'static>>,
    pub roots: Option<RootCertStore>,
    pub pins: Vec<[u8; 32]>,
    pub alpn: Vec<Vec<u8>>,
    pub certificate: Option<Certificate>,
}

impl Config {
    /// Parses a configuration. The error names the field and the reason.
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let text = str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        let text = text.trim_start_matches('\u{feff}');
        match text.trim_start().chars().next() {
            None => Config::check(json::Root::default()),
            Some('{') => Config::check(json::parse(text)?),
            Some(_) if text.contains("-----BEGIN ") => Config::check(json::of_pem(text)),
            Some(_) => Err(ConfigError::Syntax(
                "expected JSON, or certificates and a private key in PEM".to_owned(),
            )),
        }
    }

    fn check(json: json::Root) -> Result<Config, ConfigError> {
        let mut provider = ring::default_provider();
        provider.cipher_suites = ciphers(json.ciphers)?;
        provider.kx_groups.insert(0, X25519MLKEM768);
        let served = Served::check(
            json.certificates,
            json.no_match,
            alpn("alpn", json.alpn)?,
            json.clients,
            json.tickets,
            json.decoy,
            json.proxy_in,
            json.proxy_out,
        )?;
        Ok(Config {
            provider: Arc::new(provider),
            versions: versions(json.versions)?,
            limits: limits(json.limits)?,
            served,
            server: Server::check(json.server)?,
        })
    }
}

impl Served {
    #[expect(clippy::too_many_arguments, reason = "the fields of the file")]
    fn check(
        certificates: Vec<json::Certificate>,
        no_match: json::NoMatch,
        alpn: Vec<Vec<u8>>,
        clients: Option<json::Clients>,
        tickets: json::Tickets,
        decoy: bool,
        proxy_in: Option<json::ProxyIn>,
        proxy_out: Option<json::ProxyOut>,
    ) -> Result<Option<Served>, ConfigError> {
        if certificates.is_empty() {
            let needless = [
                ("alpn", !alpn.is_empty()),
                ("clients", clients.is_some()),
                ("decoy", decoy),
                ("proxy-in", proxy_in.is_some()),
                ("proxy-out", proxy_out.is_some()),
            ];
            return match needless.iter().find(|(_, there)| *there) {
                None => Ok(None),
                Some((name, _)) => Err(field(
                    name,
                    "supported for accepted connections only, which need certificates",
                )),
            };
        }
        if decoy && cfg!(feature = "water-v1") {
            return Err(field(
                "decoy",
                "not supported by WATER hosts, which have one upstream; use the component",
            ));
        }
        if proxy_in.is_some() && proxy_out.is_none() && cfg!(feature = "water-v1") {
            return Err(field(
                "proxy-in",
                "a WATER host does not learn the client's address; pass it to the application \
                 with proxy-out, or use the component",
            ));
        }
        let certificates = certificates
            .into_iter()
            .enumerate()
            .map(|(index, each)| certificate(format!("certificates[{index}]"), each))
            .collect::<Result<_, _>>()?;
        Ok(Some(Served {
            certificates,
            fall_back: no_match == json::NoMatch::Default,
            alpn,
            clients: clients.map(check_clients).transpose()?.flatten(),
            tickets: check_tickets(tickets)?,
            decoy,
            proxy_in: proxy_in.map(check_proxy_in).transpose()?,
            proxy_out: proxy_out.map(check_proxy_out).transpose()?,
        }))
    }
}

impl Server {
    fn check(json: json::Server) -> Result<Server, ConfigError> {
        let remote = json.remote.map(|text| {
            text.parse().map_err(|_| {
                field(
                    "server.remote",
                    "expected a host and a port, such as example.com:443 or [2001:db8::1]:443",
                )
            })
        });
        let certificate = match (json.chain, json.key.is_some() || json.host_key.is_some()) {
            (None, false) => None,
            (Some(chain), _) => {
                let shown = json::Certificate {
                    chain,
                    key: json.key,
                    host_key: json.host_key,
                    ocsp: None,
                    names: Some(Vec::new()),
                };
                Some(certificate("server".to_owned(), shown)?)
            }
            (None, true) => return Err(field("server.chain", "missing; a key needs one")),
        };
        Ok(Server {
            remote: remote.transpose()?,
            name: name("server.name", json.name)?,
            verify: name("server.verify", json.verify)?,
            roots: json
                .roots
                .map(|text| roots("server.roots", &text))
                .transpose()?,
            pins: json
                .pins
                .iter()
                .enumerate()
                .map(|(index, text)| {
                    facts::parse_pin(text)
                        .map_err(|why| field(&format!("server.pins[{index}]"), why))
                })
                .collect::<Result<_, _>>()?,
            alpn: alpn("server.alpn", json.alpn)?,
            certificate,
        })
    }
}

fn certificate(path: String, json: json::Certificate) -> Result<Certificate, ConfigError> {
    let chain_field = format!("{path}.chain");
    let chain = pem::certificates(&chain_field, &json.chain)?;
    let key = match (json.key, json.host_key) {
        (Some(text), None) => Key::Own(pem::key(&format!("{path}.key"), &text)?),
        (None, Some(name)) if !name.is_empty() => Key::Host(name),
        (None, Some(_)) => {
            let why = "expected the host's name for the key";
            return Err(field(&format!("{path}.host-key"), why));
        }
        (None, None) => {
            let why = "missing; a chain needs key, or host-key for a key of the host";
            return Err(field(&format!("{path}.key"), why));
        }
        (Some(_), Some(_)) => {
            let why = "expected one of key and host-key";
            return Err(field(&format!("{path}.host-key"), why));
        }
    };
    let staple = json.ocsp.map(|text| {
        let response = facts::base64(&text).ok_or("expected an OCSP response in base64")?;
        Staple::new(response, &chain)
    });
    let staple = staple
        .transpose()
        .map_err(|why: String| field(&format!("{path}.ocsp"), why))?;
    let names = match json.names {
        Some(names) => names
            .iter()
            .enumerate()
            .map(|(index, text)| {
                names::host(text).ok_or_else(|| {
                    let expected = "expected a name such as example.com or *.example.com";
                    field(&format!("{path}.names[{index}]"), expected)
                })
            })
            .collect::<Result<_, _>>()?,
        None => facts::hosts(&chain[0]).map_err(|why| field(&chain_field, why))?,
    };
    Ok(Certificate {
        field: path,
        chain,
        key,
        staple,
        names,
    })
}

/// The cipher suites: all of ring's, or the named ones in their order.
fn ciphers(names: Option<Vec<String>>) -> Result<Vec<rustls::SupportedCipherSuite>, ConfigError> {
    use rustls::crypto::ring::cipher_suite::*;
    // ChaCha20 comes first: it is five times as fast without instructions for AES, as in a module.
    let [chacha20, aes_128, aes_256] = records::suites();
    let all = [
        chacha20,
        aes_128,
        aes_256,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ];
    let Some(names) = names else {
        return Ok(all.to_vec());
    };
    let known = || all.map(|suite| facts::suite(suite.suite())).join(", ");
    if names.is_empty() {
        return Err(field("ciphers", format!("expected some of {}", known())));
    }
    let find = |(index, name): (usize, &String)| {
        let found = all
            .iter()
            .find(|suite| facts::suite(suite.suite()) == *name);
        found.copied().ok_or_else(|| {
            let why = format!("unknown cipher; expected one of {}", known());
            field(&format!("ciphers[{index}]"), why)
        })
    };
    names.iter().enumerate().map(find).collect()
}

fn versions(
    versions: Vec<json::Version>,
) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
    let versions: Vec<_> = [
        (json::Version::OneThree, &rustls::version::TLS13),
        (json::Version::OneTwo, &rustls::version::TLS12),
    ]
    .into_iter()
    .filter(|(version, _)| versions.contains(version))
    .map(|(_, version)| version)
    .collect();
    match versions.is_empty() {
        true => Err(field("versions", "expected \"1.2\", \"1.3\" or both")),
        false => Ok(versions),
    }
}

fn limits(json: json::Limits) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let seconds = |name: &str, seconds: Option<u64>| {
        let known = watm_schema::field(&OF_LIMITS, name);
        let checked = seconds.map(|seconds| known.admit(Some(seconds)).map(Duration::from_secs));
        checked
            .transpose()
            .map_err(|why| field(&format!("limits.{name}"), why))
    };
    Ok(Limits {
        handshake: seconds("handshake", json.handshake)?.unwrap_or(default.handshake),
        idle: seconds("idle", json.idle)?,
        lifetime: seconds("lifetime", json.lifetime)?,
        ..default
    })
}

fn alpn(path: &str, protocols: Vec<String>) -> Result<Vec<Vec<u8>>, ConfigError> {
    if protocols.len() > ALPN_MOST {
        return Err(field(
            path,
            format!("expected at most {ALPN_MOST} protocols"),
        ));
    }
    for (index, protocol) in protocols.iter().enumerate() {
        if protocol.is_empty() || protocol.len() > 255 {
            let why = "expected a protocol of 1 to 255 bytes, such as h2";
            return Err(field(&format!("{path}[{index}]"), why));
        }
    }
    Ok(protocols.into_iter().map(String::into_bytes).collect())
}

fn check_clients(json: json::Clients) -> Result<Option<Clients>, ConfigError> {
    let wanted = match json.certificates {
        json::Wanted::None => None,
        json::Wanted::Optional => Some(Wanted::Optional),
        json::Wanted::Required => Some(Wanted::Required),
    };
    let Some(wanted) = wanted else {
        return match json.roots.is_none() && json.crls.is_none() && json.allow.is_empty() {
            true => Ok(None),
            false => Err(field(
                "clients.certificates",
                "expected \"optional\" or \"required\" beside roots, crls or allow",
            )),
        };
    };
    let roots = json
        .roots
        .map(|text| roots("clients.roots", &text))
        .transpose()?;
    let allow = json
        .allow
        .iter()
        .enumerate()
        .map(|(index, text)| {
            Allow::parse(text).map_err(|why| field(&format!("clients.allow[{index}]"), why))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if roots.is_none() && (allow.is_empty() || !allow.iter().all(Allow::is_pin)) {
        return Err(field(
            "clients.roots",
            "missing; required unless allow has only pins of keys (spki:sha256:…)",
        ));
    }
    let crls = json
        .crls
        .map(|text| pem::crls("clients.crls", &text))
        .transpose()?;
    if roots.is_none() && crls.is_some() {
        return Err(field("clients.crls", "need roots, which are missing"));
    }
    Ok(Some(Clients {
        wanted,
        roots,
        crls: crls.unwrap_or_default(),
        stale_crls: json.stale_crls == json::StaleCrls::Accept,
        allow,
    }))
}

fn check_tickets(json: json::Tickets) -> Result<Option<TicketOptions>, ConfigError> {
    let options = match json {
        json::Tickets::Switch(false) => return Ok(None),
        json::Tickets::Switch(true) => json::TicketOptions::default(),
        json::Tickets::Options(options) => options,
    };
    let secret = options.secret.map(|text| {
        let bytes = facts::base64(&text).filter(|bytes| bytes.len() >= SECRET);
        let expected = format!("expected at least {SECRET} bytes in base64");
        bytes.ok_or_else(|| field("tickets.secret", expected))
    });
    let hours = watm_schema::field(&OF_TICKETS, "hours");
    hours
        .admit(Some(options.hours.into()))
        .map_err(|why| field("tickets.hours", why))?;
    Ok(Some(TicketOptions {
        secret: secret.transpose()?,
        hours: options.hours,
    }))
}

/// Passes the fields to the transport `proxy-protocol`.
fn check_proxy_in(json: json::ProxyIn) -> Result<ProxyProtocol, ConfigError> {
    let mut lines = String::new();
    for (key, value) in json.0 {
        if value.contains(['"', '\\', '\n', '\r']) {
            let why = "expected a text without quotes, backslashes and line breaks";
            return Err(field(&format!("proxy-in.{key}"), why));
        }
        lines += &format!("{key} = \"{value}\"\n");
    }
    ProxyProtocol::configure(lines.as_bytes()).map_err(|error| match error {
        ConfigError::Field(path, why) => ConfigError::Field(format!("proxy-in.{path}"), why),
        error => ConfigError::Field("proxy-in".to_owned(), error.to_string()),
    })
}

fn check_proxy_out(json: json::ProxyOut) -> Result<ProxyOut, ConfigError> {
    let version = match json.version {
        json::ProxyVersion::V1 => Version::One,
        json::ProxyVersion::V2 => Version::Two,
    };
    for (name, there) in [
        ("certificate", json.certificate),
        ("unique-id", json.unique_id),
    ] {
        if version == Version::One && there {
            return Err(field(&format!("proxy-out.{name}"), "needs version v2"));
        }
    }
    Ok(ProxyOut {
        version,
        certificate: json.certificate,
        unique_id: json.unique_id,
    })
}

fn roots(path: &str, text: &str) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(pem::certificates(path, text)?);
    match added {
        0 => Err(field(path, "none of these certificates can be a root")),
        _ => Ok(store),
    }
}

fn name(path: &str, text: Option<String>) -> Result<Option<ServerName<'static>>, ConfigError> {
    let parse = |text: String| {
        ServerName::try_from(text)
            .map_err(|_| field(path, "expected a name or an address, such as example.com"))
    };
    text.map(parse).transpose()
}

/// The error about a field.
pub fn field(path: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::Field(path.to_owned(), why.into())
}
