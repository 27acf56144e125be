//! The configuration and its fields. Used by `codec`, `datagrams` and `opening`.

use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{ConfigError, Destination};
use watm_proxy_header::FIXED;
use watm_schema::{ADDRESS_AND_PORT, Described, Field, Kind, fields};
use watm_stream::{REMOTE, Settings};

use crate::parse::{LONGEST, Rules};
use crate::sources::Sources;

/// The longest header that may be configured, in bytes: the most that HAProxy's own buffer leaves
/// for it.
const MOST: u64 = 4096;

/// The fields of the configuration.
pub const FIELDS: [Described; 13] = [
    (
        Field::new(
            "from",
            Kind::List("addresses and networks, separated by commas, or `any`"),
        )
        .or_else("nobody"),
        "The senders whose headers the module believes.",
    ),
    (
        Field::new("accept", Kind::List("`v1`, `v2` or `v1, v2`")).or("v1, v2"),
        "The versions that the module accepts.",
    ),
    (
        Field::number("longest", "bytes", FIXED as u64, MOST).or_number(LONGEST as u64),
        "The longest header of version 2.",
    ),
    (
        Field::choice("unspecified", &["refuse", "local"]).or("refuse"),
        "The treatment of a version 2 header without addresses: refused, or as LOCAL.",
    ),
    (
        Field::choice("local", &["accept", "refuse"]).or("accept"),
        "The treatment of LOCAL and UNKNOWN, as health checks send: accepted as the sender's own \
         connection, or refused.",
    ),
    (
        // The specification demands at least 3 seconds, for a retransmission.
        Field::number("header-time", "seconds", 3, 300).or_number(5),
        "The time that a header may take.",
    ),
    (
        Field::choice("datagrams", &["each", "first", "spp"]).or("each"),
        "The [header of datagrams](#datagrams).",
    ),
    (
        // Up to a day.
        Field::number("datagram-idle", "seconds", 1, 86_400).or_number(60),
        "The time without traffic before a client's flow of datagrams ends.",
    ),
    (
        // Up to the highest limit of a host.
        Field::number("datagram-flows", "", 1, 1_048_576).or_number(16_384),
        "The most flows of datagrams at once. One more ends the flow that was idle longest.",
    ),
    (
        Field::choice("send", &["v1", "v2"]).or("v2"),
        "The version of the header that dialled connections begin with.",
    ),
    (
        Field::new("source", ADDRESS_AND_PORT).or_else("LOCAL or UNKNOWN"),
        "The source in that header. `destination` goes with it.",
    ),
    (
        Field::new("destination", ADDRESS_AND_PORT).or_else("LOCAL or UNKNOWN"),
        "The destination in that header, of the same family.",
    ),
    REMOTE,
];

static PARSED: [Field; 13] = fields(&FIELDS);

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

impl Config {
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let mut settings = Settings::parse(config, &PARSED)?;
        let from = match settings.take("from") {
            Some(text) => Sources::parse(&text).map_err(|why| field("from", why))?,
            None => Sources::Nobody,
        };
        let (v1, v2) = match settings.take("accept").as_deref() {
            None | Some("v1, v2" | "v1,v2") => (true, true),
            Some("v1") => (true, false),
            Some("v2") => (false, true),
            Some(_) => {
                return Err(field(
                    "accept",
                    watm_schema::field(&PARSED, "accept").expected(),
                ));
            }
        };
        let rules = Rules {
            v1,
            v2,
            longest: whole(settings.take_number("longest")?),
            unspecified_is_local: settings.take_choice("unspecified")? == "local",
        };
        let local = settings.take_choice("local")? == "accept";
        let header_time = Duration::from_secs(settings.take_number("header-time")?);
        let datagrams = Datagrams {
            mode: match settings.take_choice("datagrams")? {
                "each" => Mode::Each,
                "first" => Mode::First,
                _ => Mode::Spp,
            },
            idle: Duration::from_secs(settings.take_number("datagram-idle")?),
            flows: whole(settings.take_number("datagram-flows")?),
        };
        let send = match settings.take_choice("send")? {
            "v1" => Version::One,
            _ => Version::Two,
        };
        let source = settings.take_parsed("source")?;
        let destination = settings.take_parsed("destination")?;
        Ok(Config {
            from,
            rules,
            local,
            header_time,
            datagrams,
            send,
            ends: ends(source, destination)?,
            remote: settings.take_parsed("remote")?,
        })
    }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
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
