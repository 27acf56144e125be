//! One server in JSON, with this transport's names of fields and those of other implementations.
//! Used by `json`; `url` makes its configuration with the same defaults.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use watm_core::{ConfigError, Destination};
use watm_schema::{Absent, Field, Kind, names};

use super::fields::{OF_SERVER, OF_USER};
use super::ignored::without_effect;
use super::value::{self, field, quote};
use super::{Config, Mode, User};
use crate::method::Method;

/// Other implementations' names of the same fields.
const ALIASES: &[(&str, &str)] = &[
    ("address", "server"),
    ("port", "server_port"),
    ("udp_timeout", "udp_idle_timeout"),
];

/// The most users of a server.
const MOST_USERS: usize = 65_536;

const SERVER: Field = watm_schema::field(&OF_SERVER, "server");
const PORT: Field = watm_schema::field(&OF_SERVER, "server_port");
const TARGET: Field = watm_schema::field(&OF_SERVER, "target");
const IDLE: Field = watm_schema::field(&OF_SERVER, "udp_idle_timeout");

/// The default idle time after which a datagram flow ends, as in other implementations.
pub(crate) const DEFAULT_UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(IDLE.default_number());

/// Parses one server, whose fields have `path` in front of their names. `custom`: it may have
/// unknown fields.
pub(super) fn parse(
    object: &Map<String, Value>,
    path: &str,
    custom: bool,
) -> Result<Config, ConfigError> {
    let server = Server { object, path };
    let mut warnings = server.ignored(custom)?;
    server.check_aliases()?;
    server.check_fields()?;

    let method = server.method()?;
    let password = server.text("password").unwrap_or_default();
    let config = assemble(method, password, server.users(method)?);
    let mut config = config.map_err(|error| match error {
        ConfigError::Field(name, why) => server.at(&name, why),
        other => other,
    })?;
    config.server = server.address(&mut warnings)?;
    config.target = server.target()?;
    config.mode = server.mode();
    if let Some(seconds) = server.idle_seconds(&mut warnings) {
        config.udp_idle_timeout = Duration::from_secs(seconds);
    }
    config.prefix = server.prefix()?;
    config.segmented_header = server.segmented_header(method)?;
    config.insecure = server.is_insecure(method, config.mode, &mut warnings)?;
    config.warnings = warnings;
    Ok(config)
}

/// The fields of a server.
struct Server<'a> {
    object: &'a Map<String, Value>,
    /// The part in front of a field's name in errors, such as `servers[0].`.
    path: &'a str,
}

impl<'a> Server<'a> {
    fn at(&self, name: &str, why: String) -> ConfigError {
        field(&format!("{}{name}", self.path), why)
    }

    /// Returns a field's value, if it is written and not null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.object
            .get(self.written(name))
            .filter(|value| !value.is_null())
    }

    /// Returns the name under which a field is written.
    fn written<'n>(&self, name: &'n str) -> &'n str {
        let has_value = |name: &str| self.object.get(name).is_some_and(|value| !value.is_null());
        let alias = ALIASES
            .iter()
            .find(|(alias, known)| *known == name && has_value(alias));
        alias.map_or(name, |(alias, _)| *alias)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Returns the warnings about fields that are not read.
    fn ignored(&self, custom: bool) -> Result<Vec<String>, ConfigError> {
        let aliases = ALIASES.iter().map(|(alias, _)| *alias);
        let known: Vec<&str> = OF_SERVER
            .iter()
            .map(|field| field.name)
            .chain(aliases)
            .chain(["disabled", "version"])
            .collect();
        let unknown = format!("unknown; expected one of {}", names(&OF_SERVER));
        let mut warnings = Vec::new();
        for (name, value) in self.object {
            let warning = without_effect(name, value, self.path, &known, custom, &unknown)?;
            warnings.extend(warning);
        }
        Ok(warnings)
    }

    fn check_aliases(&self) -> Result<(), ConfigError> {
        let twice = ALIASES.iter().find(|(alias, name)| {
            [alias, name]
                .iter()
                .all(|each| self.object.contains_key(**each))
        });
        match twice {
            Some((alias, name)) => {
                let why = format!("duplicates {name}; remove one of them");
                Err(self.at(alias, why))
            }
            None => Ok(()),
        }
    }

    fn check_fields(&self) -> Result<(), ConfigError> {
        for field in &OF_SERVER {
            let written = self.written(field.name);
            let checked = match self.get(field.name) {
                // Other implementations admit any time.
                Some(value) if written == "udp_timeout" && number(value).is_some() => Ok(()),
                Some(value) => check(field, value),
                None if field.absent == Absent::Refused => Err("missing".to_owned()),
                None => Ok(()),
            };
            checked.map_err(|why| self.at(written, why))?;
        }
        Ok(())
    }

    fn method(&self) -> Result<Method, ConfigError> {
        let name = self.text("method").unwrap_or_default();
        value::method(name).map_err(|why| self.at("method", why))
    }

    fn users(&self, method: Method) -> Result<Vec<User>, ConfigError> {
        let Some(users) = self.get("users").and_then(Value::as_array) else {
            return Ok(Vec::new());
        };
        if users.len() > MOST_USERS {
            return Err(self.at("users", format!("more than {MOST_USERS}")));
        }
        let users = users.iter().enumerate();
        users
            .map(|(index, user)| self::user(method, user, &format!("{}users[{index}]", self.path)))
            .collect()
    }

    fn address(&self, warnings: &mut Vec<String>) -> Result<Option<Destination>, ConfigError> {
        match (self.get("server"), self.get("server_port")) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let why = "missing; server_port needs one".to_owned();
                Err(self.at("server", why))
            }
            (Some(servers), port) => address(servers, port, self.path, warnings).map(Some),
        }
    }

    fn target(&self) -> Result<Option<Destination>, ConfigError> {
        let Some(target) = self.text("target") else {
            return Ok(None);
        };
        let parsed = target.parse::<Destination>();
        parsed
            .map(Some)
            .map_err(|_| self.at("target", TARGET.expected()))
    }

    fn mode(&self) -> Mode {
        match self.text("mode") {
            None | Some("tcp_and_udp") => Mode::Both,
            Some("tcp_only") => Mode::Streams,
            Some(_) => Mode::Datagrams,
        }
    }

    /// Returns the idle time in seconds, within its range.
    fn idle_seconds(&self, warnings: &mut Vec<String>) -> Option<u64> {
        let seconds = self.get("udp_idle_timeout").and_then(number)?;
        let kept = seconds.clamp(*IDLE.range().start(), *IDLE.range().end());
        if seconds != kept {
            let (path, name) = (self.path, self.written("udp_idle_timeout"));
            warnings.push(format!(
                "{path}{name}: {seconds} s is out of range; using {kept} s"
            ));
        }
        Some(kept)
    }

    fn prefix(&self) -> Result<Vec<u8>, ConfigError> {
        let prefix = self.text("prefix").map(value::prefix).transpose();
        let prefix = prefix.map_err(|why| self.at("prefix", why))?;
        Ok(prefix.unwrap_or_default())
    }

    fn segmented_header(&self, method: Method) -> Result<bool, ConfigError> {
        match self.get("segmented_header") {
            Some(_) if !method.is_2022() => {
                let why = format!("{method} does not have this header");
                Err(self.at("segmented_header", why))
            }
            may => Ok(may == Some(&Value::Bool(true))),
        }
    }

    /// Returns true if the wire format is that of gfw-report's patch, which is insecure.
    fn is_insecure(
        &self,
        method: Method,
        mode: Mode,
        warnings: &mut Vec<String>,
    ) -> Result<bool, ConfigError> {
        if self.text("gfw_report_compat").is_none() {
            return Ok(false);
        }
        let refused = |why: String| Err(self.at("gfw_report_compat", why));
        if method.is_2022() {
            return refused(format!("not supported by {method}"));
        }
        warnings.push(
            "gfw_report_compat: anyone who sees the traffic can partly read and forge connections"
                .to_owned(),
        );
        if mode == Mode::Datagrams {
            return refused("it is for streams, and mode is udp_only".to_owned());
        }
        Ok(true)
    }
}

/// Returns an error if the value is not of the field's kind.
fn check(field: &Field, value: &Value) -> Result<(), String> {
    let right = match field.kind {
        Kind::Switch => value.is_boolean(),
        Kind::Number { .. } => number(value).is_some_and(|number| field.range().contains(&number)),
        Kind::Choice(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        Kind::Text(_) => value.is_string(),
        Kind::List(_) => value.is_array(),
        Kind::Table(_) => value.is_object(),
        Kind::Any(_) => true,
    };
    if right { Ok(()) } else { Err(field.expected()) }
}

/// Parses the address of a client's server. Of several, the first is used, as in shadowsocks-libev,
/// where each may have its own port.
fn address(
    servers: &Value,
    port: Option<&Value>,
    path: &str,
    warnings: &mut Vec<String>,
) -> Result<Destination, ConfigError> {
    let at = |name: &str, why: &str| field(&format!("{path}{name}"), why);
    let first = match servers {
        Value::Array(servers) => {
            if servers.len() > 1 {
                warnings.push(format!(
                    "{path}server has {} addresses: a client uses the first, and a server listens \
                     where the host says",
                    servers.len()
                ));
            }
            servers.first()
        }
        one => Some(one),
    };
    let Some(Value::String(host)) = first else {
        return Err(at("server", &SERVER.expected()));
    };
    if servers.is_array()
        && host.parse::<IpAddr>().is_err()
        && let Ok(destination) = host.parse::<Destination>()
    {
        return Ok(destination);
    }
    let port = port.ok_or_else(|| at("server_port", "missing; server needs one"))?;
    let port = PORT
        .admit(number(port))
        .map_err(|why| at("server_port", &why))?;
    let port = u16::try_from(port).unwrap_or_default();
    value::destination(host, port).ok_or_else(|| at("server", "not a host name or an address"))
}

/// Parses a number, which may be a string, as in shadowsocks-libev.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

/// Makes a configuration of these values, with defaults for all others.
pub(super) fn assemble(
    method: Method,
    password: &str,
    users: Vec<User>,
) -> Result<Config, ConfigError> {
    let keys = super::keys(method, password).map_err(|why| field("password", why))?;
    let mut config = Config {
        method,
        keys,
        password: password.to_owned(),
        users,
        server: None,
        target: None,
        mode: Mode::default(),
        udp_idle_timeout: DEFAULT_UDP_IDLE_TIMEOUT,
        prefix: Vec::new(),
        segmented_header: false,
        insecure: false,
        warnings: Vec::new(),
    };
    if config.users.is_empty() {
        return Ok(config);
    }
    if !method.has_headers() {
        let why =
            format!("{method} does not support users; 2022-blake3-aes-128-gcm and -256-gcm do");
        return Err(field("users", why));
    }
    if config.keys.len() > 1 {
        let why = "a server with users has one key here; give each user its own key";
        return Err(field("password", why));
    }
    config.users.sort_by_key(|user| user.id);
    let same = config
        .users
        .windows(2)
        .find(|pair| pair[0].id == pair[1].id);
    if let Some(pair) = same {
        let why = format!(
            "{} and {} have the same key",
            quote(&pair[0].name),
            quote(&pair[1].name)
        );
        return Err(field("users", why));
    }
    Ok(config)
}

fn user(method: Method, value: &Value, path: &str) -> Result<User, ConfigError> {
    let Value::Object(user) = value else {
        return Err(field(path, "not an object with name and password"));
    };
    let known = |key: &str| OF_USER.iter().any(|field| field.name == key);
    if let Some(unknown) = user.keys().find(|key| !known(key)) {
        let unknown = format!("{path}.{}", quote(unknown));
        return Err(field(
            &unknown,
            format!("unknown; expected one of {}", names(&OF_USER)),
        ));
    }
    let text = |name: &str| {
        let text = user
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        text.ok_or_else(|| field(&format!("{path}.{name}"), "missing, or not a string"))
    };
    let (name, password) = (text("name")?, text("password")?);
    let named = |why| field(&format!("{path}.password"), why);
    if !method.is_2022() {
        return Err(field(path, format!("{method} does not support users")));
    }
    let key = super::key(method, password).map_err(named)?;
    if name.chars().any(char::is_control) || name.len() > 255 {
        return Err(field(
            &format!("{path}.name"),
            "not a name of printable characters, 255 bytes at most",
        ));
    }
    Ok(User {
        name: name.to_owned(),
        id: key.name(),
        key,
        password: password.to_owned(),
    })
}
