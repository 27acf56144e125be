//! mitmproxy's `wireguard.conf`, JSON with two keys, and the fields that this transport adds.

use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use serde_json::{Map, Value};
use watm_core::ConfigError;
use watm_netstack::Algorithm;
use watm_schema::names;

use super::fields::{CLIENT_ADDRESS, DEFAULT_DNS, OF_MITMPROXY};
use super::{AllowedIps, ClientSettings, Config, Limits, PeerConfig, check, value};

/// Reads a configuration in this format.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let value: Value = serde_json::from_str(text).map_err(syntax)?;
    let Value::Object(object) = value else {
        return Err(ConfigError::Syntax(
            "not a JSON object; it looks like {\"server_key\": …, \"client_key\": …}".to_owned(),
        ));
    };
    if object.contains_key("") {
        return Err(ConfigError::Syntax(
            "not a configuration: a field without a name".to_owned(),
        ));
    }
    let known = |key: &str| OF_MITMPROXY.iter().any(|field| field.name == key);
    if let Some(unknown) = object.keys().find(|key| !known(key)) {
        return Err(field(
            &value::quote(unknown),
            format!("unknown; expected one of {}", names(&OF_MITMPROXY)),
        ));
    }

    let private_key = StaticSecret::from(key(&object, "server_key")?.ok_or_else(|| {
        field(
            "server_key",
            "missing; make one with 'wg genkey'".to_owned(),
        )
    })?);
    let public_key = PublicKey::from(&private_key);
    let peers = peers(&object)?;
    check::peers(public_key.as_bytes(), &peers, |position| {
        peer_field(&object, position)
    })
    .map_err(|error| field(&peer_field(&object, error.position), error.why))?;

    let defaults = Limits::default();
    Ok(Config {
        private_key,
        public_key,
        listen_port: None,
        mtu: number(&object, "mtu")?.and_then(|mtu| u16::try_from(mtu).ok()),
        // All peers are clients.
        addresses: Vec::new(),
        target: None,
        client: ClientSettings {
            addresses: list(&object, "client_address", CLIENT_ADDRESS, value::network)?,
            dns: list(&object, "dns", DEFAULT_DNS, value::dns)?,
        },
        warnings: if peers.is_empty() {
            vec![
                "peer_public_keys is empty, so no client can connect; add the public key of each \
                 client"
                    .to_owned(),
            ]
        } else {
            Vec::new()
        },
        without_effect: None,
        peers,
        limits: Limits {
            udp_idle_timeout: number(&object, "udp_idle_timeout")?
                .map_or(defaults.udp_idle_timeout, |seconds| {
                    Duration::from_secs(seconds.into())
                }),
            max_flows: number(&object, "max_flows")?.unwrap_or(defaults.max_flows),
            handshakes_per_second: number(&object, "handshakes_per_second")?
                .unwrap_or(defaults.handshakes_per_second),
        },
        congestion: congestion_control(&object)?,
        network: watm_netem::of_json(object.get("network")).map_err(|why| field("network", why))?,
    })
}

/// The peer of the client's private key, then the keys of the list.
fn peers(object: &Map<String, Value>) -> Result<Vec<PeerConfig>, ConfigError> {
    let mut peers = Vec::new();
    if let Some(key) = key(object, "client_key")? {
        let private_key = StaticSecret::from(key);
        peers.push(peer(PublicKey::from(&private_key), Some(private_key)));
    }
    match object.get("peer_public_keys") {
        None if peers.is_empty() => {
            return Err(field(
                "client_key",
                "missing; give the client's private key here, or public keys in peer_public_keys"
                    .to_owned(),
            ));
        }
        None => {}
        Some(Value::Array(keys)) => {
            for (index, key) in keys.iter().enumerate() {
                let name = format!("peer_public_keys[{index}]");
                let key = key_value(&name, key)?;
                peers.push(peer(PublicKey::from(key), None));
            }
        }
        Some(_) => {
            return Err(field(
                "peer_public_keys",
                "not a list of keys, each 44 characters of base64".to_owned(),
            ));
        }
    }
    Ok(peers)
}

fn peer(public_key: PublicKey, private_key: Option<StaticSecret>) -> PeerConfig {
    PeerConfig {
        public_key,
        private_key,
        preshared_key: None,
        allowed_ips: AllowedIps::Any,
        disallowed_ips: Vec::new(),
        persistent_keepalive: None,
        endpoint: None,
    }
}

/// The field that the peer at this position came from.
fn peer_field(object: &Map<String, Value>, position: usize) -> String {
    match (object.contains_key("client_key"), position) {
        (true, 0) => "client_key".to_owned(),
        (has_client, _) => format!("peer_public_keys[{}]", position - usize::from(has_client)),
    }
}

fn key(object: &Map<String, Value>, name: &str) -> Result<Option<[u8; 32]>, ConfigError> {
    object
        .get(name)
        .map(|value| key_value(name, value))
        .transpose()
}

fn key_value(name: &str, value: &Value) -> Result<[u8; 32], ConfigError> {
    let text = value
        .as_str()
        .ok_or_else(|| field(name, "not a string of 44 characters of base64".to_owned()))?;
    value::key(text).map_err(|why| field(name, why))
}

fn number(object: &Map<String, Value>, name: &str) -> Result<Option<u32>, ConfigError> {
    let known = watm_schema::field(&OF_MITMPROXY, name);
    let parse = |value: &Value| match value {
        Value::String(text) => value::number(text, &known),
        value => value::number(&value.to_string(), &known),
    };
    object
        .get(name)
        .map(|value| parse(value).map_err(|why| field(name, why)))
        .transpose()
}

fn congestion_control(object: &Map<String, Value>) -> Result<Algorithm, ConfigError> {
    const NAME: &str = "congestion_control";
    let known = watm_schema::field(&OF_MITMPROXY, NAME);
    let parse = |value: &Value| match value {
        Value::String(text) => value::congestion_control(text, &known),
        value => value::congestion_control(&value.to_string(), &known),
    };
    let found = object.get(NAME).map(parse).transpose();
    Ok(found.map_err(|why| field(NAME, why))?.unwrap_or_default())
}

/// Parses a list, which is one string with commas.
fn list<T>(
    object: &Map<String, Value>,
    name: &str,
    default: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ConfigError> {
    let text = match object.get(name) {
        None => default,
        Some(Value::String(text)) => text,
        Some(_) => {
            return Err(field(name, format!("not a string, such as \"{default}\"")));
        }
    };
    value::list(text, parse).map_err(|why| field(name, why))
}

fn field(name: &str, why: String) -> ConfigError {
    ConfigError::Field(name.to_owned(), why)
}

fn syntax(error: serde_json::Error) -> ConfigError {
    ConfigError::Syntax(format!("not JSON: {error}"))
}
