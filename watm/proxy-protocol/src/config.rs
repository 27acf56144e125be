//! The parsed configuration. `codec` documents its fields.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use watm_core::{ConfigError, Destination};
use watm_stream::Settings;

use crate::parse::Rules;
use crate::sources::Sources;
use crate::v2;

/// The longest header that may be configured, in bytes: the most that HAProxy's own buffer leaves
/// for it.
const MOST: usize = 4096;

/// A parsed configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The senders whose headers are trusted.
    pub from: Sources,
    pub rules: Rules,
    /// True if LOCAL is accepted, as the sender's own connection.
    pub local: bool,
    /// The time in which a header must arrive.
    pub header_time: Duration,
    pub datagrams: Datagrams,
    /// The version of the header in front of dialled connections.
    pub send: Version,
    /// The source and destination in that header.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The destination of a dialled connection whose caller names none.
    pub remote: Option<Destination>,
}

/// The settings of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagrams {
    pub mode: Mode,
    /// The idle time after which a flow ends.
    pub idle: Duration,
    /// The most flows at once.
    pub flows: usize,
}

/// The headers of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A header of version 2 in each datagram.
    Each,
    /// A header of version 2 in the first datagram from an address.
    First,
    /// A header of the Simple Proxy Protocol in each datagram, and in the answers.
    Spp,
}

/// The range of the seconds for a header: the specification demands at least 3, for a
/// retransmission.
const HEADER_SECONDS: RangeInclusive<u64> = 3..=300;
/// The range of the seconds without a datagram: up to a day.
const IDLE_SECONDS: RangeInclusive<u64> = 1..=86_400;
/// The range of the datagram flows: up to the highest limit of a host.
const FLOWS: RangeInclusive<u64> = 1..=1_048_576;

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
        let local = match settings.take("local").as_deref() {
            None | Some("accept") => true,
            Some("refuse") => false,
            Some(_) => return Err(field("local", "expected \"accept\" or \"refuse\"")),
        };
        let header_time = number(&mut settings, "header-time", HEADER_SECONDS, 5)?;
        let mode = match settings.take("datagrams").as_deref() {
            None | Some("each") => Mode::Each,
            Some("first") => Mode::First,
            Some("spp") => Mode::Spp,
            Some(_) => {
                let why = "expected \"each\", \"first\" or \"spp\"";
                return Err(field("datagrams", why));
            }
        };
        let datagrams = Datagrams {
            mode,
            idle: Duration::from_secs(number(&mut settings, "datagram-idle", IDLE_SECONDS, 60)?),
            flows: usize::try_from(number(&mut settings, "datagram-flows", FLOWS, 16_384)?)
                .unwrap_or(usize::MAX),
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
            local,
            header_time: Duration::from_secs(header_time),
            datagrams,
            send,
            ends: ends(source, destination)?,
            remote,
        })
    }
}

fn number(
    settings: &mut Settings,
    key: &'static str,
    range: RangeInclusive<u64>,
    usual: u64,
) -> Result<u64, ConfigError> {
    let Some(text) = settings.take(key) else {
        return Ok(usual);
    };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        field(key, format!("expected a number from {least} to {most}"))
    })
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
