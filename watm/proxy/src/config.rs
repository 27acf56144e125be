use std::net::SocketAddr;

use watm_core::{ConfigError, Destination};
use watm_stream::Settings;

use crate::parse::Rules;
use crate::sources::Sources;
use crate::v2;

/// The longest header that may be configured: what HAProxy's own buffer leaves to it.
const MOST: usize = 4096;

/// What the configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whose headers are believed.
    pub from: Sources,
    pub rules: Rules,
    /// What is sent to whoever is dialled.
    pub send: Version,
    /// Who the header says that a dialled connection is from, and to.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Where a connection is dialled to whose caller says nothing.
    pub remote: Option<Destination>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

impl Config {
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let mut settings = Settings::parse(config)?;
        let from = match settings.take("from") {
            Some(text) => Sources::parse(&text).map_err(|why| field("from", why))?,
            None => Sources::Nobody,
        };
        let (v1, v2) = match settings.take("accept").as_deref() {
            None | Some("v1, v2" | "v1,v2") => (true, true),
            Some("v1") => (true, false),
            Some("v2") => (false, true),
            Some(_) => return Err(field("accept", "expected \"v1\", \"v2\" or \"v1, v2\"")),
        };
        let longest = match settings.take("longest") {
            None => Rules::default().longest,
            Some(text) => text
                .parse()
                .ok()
                .filter(|longest| (v2::FIXED..=MOST).contains(longest))
                .ok_or_else(|| {
                    let why = format!("expected a number of bytes from {} to {MOST}", v2::FIXED);
                    field("longest", why)
                })?,
        };
        let unspecified_is_local = match settings.take("unspecified").as_deref() {
            None | Some("refuse") => false,
            Some("local") => true,
            Some(_) => return Err(field("unspecified", "expected \"refuse\" or \"local\"")),
        };
        let send = match settings.take("send").as_deref() {
            None | Some("v2") => Version::Two,
            Some("v1") => Version::One,
            Some(_) => return Err(field("send", "expected \"v1\" or \"v2\"")),
        };
        let source = end(&mut settings, "source")?;
        let destination = end(&mut settings, "destination")?;
        let remote = settings.take_destination("remote")?;
        settings.finish()?;
        Ok(Config {
            from,
            rules: Rules {
                v1,
                v2,
                longest,
                unspecified_is_local,
            },
            send,
            ends: ends(source, destination)?,
            remote,
        })
    }
}

fn end(settings: &mut Settings, key: &'static str) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(text) = settings.take(key) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        let why = "expected an address and a port, such as 192.0.2.1:443 or [2001:db8::1]:443";
        field(key, why)
    })
}

fn ends(
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Result<Option<(SocketAddr, SocketAddr)>, ConfigError> {
    match (source, destination) {
        (None, None) => Ok(None),
        (Some(source), Some(destination)) if source.is_ipv4() == destination.is_ipv4() => {
            Ok(Some((source, destination)))
        }
        (Some(_), Some(_)) => Err(field(
            "destination",
            "expected an address of source's family",
        )),
        (Some(_), None) => Err(field("destination", "missing; source needs one")),
        (None, Some(_)) => Err(field("source", "missing; destination needs one")),
    }
}

fn field(key: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::Field(key.to_owned(), why.into())
}
