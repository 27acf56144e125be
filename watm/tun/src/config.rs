//! The configuration: JSON, with the fields in [`FIELDS`].

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Map, Value};
use watm_core::ConfigError;
use watm_netem::Rule;
use watm_netstack::Algorithm;
use watm_schema::{ADDRESS_AND_PORT, Described, Field, Kind, fields};

/// The fields of the configuration.
pub const FIELDS: [Described; 7] = [
    (
        Field::number("mtu", "bytes", 1280, 65_535).or_else("the MTU of the device"),
        "The longest packet that is sent into the device.",
    ),
    (
        Field::new(
            "addresses",
            Kind::List("a list of addresses, such as `[\"10.0.0.1\", \"fd00::1\"]`"),
        )
        .or_else("none: nothing can be dialled"),
        "The addresses that the application's own connections come from.",
    ),
    (
        Field::new("target", ADDRESS_AND_PORT),
        "The destination of connections of the application that name none.",
    ),
    (
        Field::number("udp_idle_timeout", "seconds", 1, 86_400).or_number(60),
        "The time without traffic before a UDP flow ends.",
    ),
    (
        Field::number("max_flows", "", 1, 65_535).or_number(16_384),
        "The most flows at once.",
    ),
    (
        Field::choice("congestion_control", &["cubic", "bbr"]).or("cubic"),
        "How TCP towards the device finds its rate.",
    ),
    (
        watm_netem::field("network"),
        "The [bad network](networks.md) between the programs and this end.",
    ),
];

static OF_ROOT: [Field; 7] = fields(&FIELDS);

/// A parsed configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The longest packet to send; `None`: the MTU of the device.
    pub mtu: Option<u16>,
    pub addresses: Vec<IpAddr>,
    pub target: Option<SocketAddr>,
    pub udp_idle_timeout: Duration,
    pub max_flows: u32,
    pub congestion: Algorithm,
    /// The bad network between the device and the stack. Empty: a perfect one.
    pub network: Vec<Rule>,
}

impl Config {
    /// Parses a configuration; an empty one has no fields.
    pub fn parse(config: &[u8]) -> Result<Config, ConfigError> {
        let text = std::str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        // Some editors put a byte order mark at the beginning of a file.
        let root = match text.trim_start_matches('\u{feff}').trim() {
            "" => Map::new(),
            text => match serde_json::from_str(text) {
                Ok(Value::Object(root)) => root,
                Ok(_) => {
                    let why = "not a JSON object; expected one such as {\"mtu\": 1500}";
                    return Err(ConfigError::Syntax(why.to_owned()));
                }
                Err(error) => return Err(ConfigError::Syntax(format!("not JSON: {error}"))),
            },
        };
        if let Some(name) = root
            .keys()
            .find(|name| OF_ROOT.iter().all(|field| field.name != name.as_str()))
        {
            let known: Vec<_> = OF_ROOT.iter().map(|field| field.name).collect();
            let why = format!("unknown; must be one of {}", known.join(", "));
            return Err(ConfigError::Field(name.clone(), why));
        }
        let mtu = number(&root, "mtu")?;
        Ok(Config {
            mtu: mtu.map(|mtu| u16::try_from(mtu).expect("its range")),
            addresses: addresses(&root)?,
            target: text_of(&root, "target", |text| text.parse().ok())?,
            udp_idle_timeout: Duration::from_secs(or_default(&root, "udp_idle_timeout")?),
            max_flows: u32::try_from(or_default(&root, "max_flows")?).expect("its range"),
            congestion: text_of(&root, "congestion_control", |text| match text {
                "cubic" => Some(Algorithm::Cubic),
                "bbr" => Some(Algorithm::Bbr),
                _ => None,
            })?
            .unwrap_or_default(),
            network: watm_netem::of_json(root.get("network"))
                .map_err(|why| ConfigError::Field("network".to_owned(), why))?,
        })
    }

    /// Returns the source of a connection to this destination.
    pub fn source(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter();
        addresses
            .find(|address| address.is_ipv4() == destination.is_ipv4())
            .copied()
    }
}

fn number(root: &Map<String, Value>, name: &str) -> Result<Option<u64>, ConfigError> {
    let of = watm_schema::field(&OF_ROOT, name);
    let admit = |value: &Value| {
        of.admit(value.as_u64())
            .map_err(|why| ConfigError::Field(name.to_owned(), why))
    };
    root.get(name).map(admit).transpose()
}

fn or_default(root: &Map<String, Value>, name: &str) -> Result<u64, ConfigError> {
    let of = watm_schema::field(&OF_ROOT, name);
    Ok(number(root, name)?.unwrap_or_else(|| of.default_number()))
}

fn text_of<T>(
    root: &Map<String, Value>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let of = watm_schema::field(&OF_ROOT, name);
    let parsed = |value: &Value| {
        let parsed = value.as_str().and_then(&parse);
        parsed.ok_or_else(|| ConfigError::Field(name.to_owned(), of.expected()))
    };
    root.get(name).map(parsed).transpose()
}

fn addresses(root: &Map<String, Value>) -> Result<Vec<IpAddr>, ConfigError> {
    const NAME: &str = "addresses";
    let of = watm_schema::field(&OF_ROOT, NAME);
    let wrong = || ConfigError::Field(NAME.to_owned(), of.expected());
    match root.get(NAME) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|value| {
                let address = value.as_str().and_then(|text| text.parse().ok());
                address.ok_or_else(wrong)
            })
            .collect(),
        Some(_) => Err(wrong()),
    }
}
