//! JSON: our own fields, those of other implementations, and documents of SIP008.

use std::time::Duration;

use serde_json::{Map, Value};
use watm_core::{ConfigError, Destination};

use super::value::{self, field};
use super::{Config, DEFAULT_UDP_IDLE_TIMEOUT, Mode, User};
use crate::method::Method;

/// What a configuration with a plugin is told.
pub const NO_PLUGINS: &str =
    "plugins are not started by a module; put one before the server's port and leave this out";

/// What belongs to one server.
const OF_SERVER: &[&str] = &[
    "method",
    "password",
    "users",
    "server",
    "server_port",
    "target",
    "mode",
    "udp_idle_timeout",
    "prefix",
    "segmented_header",
    "gfw_report_compat",
];

/// Other names of the same, in lists of servers.
const ALIASES: &[(&str, &str)] = &[("address", "server"), ("port", "server_port")];

/// What only has a meaning for people.
const FOR_PEOPLE: &[&str] = &[
    "id", "remarks", "name", "tag", "comment", "_comment", "disabled",
];

/// What other programs do, and here the host, or nobody.
const ELSEWHERE: &[&str] = &[
    "local_address",
    "local_port",
    "timeout",
    "fast_open",
    "no_delay",
    "reuse_port",
    "keep_alive",
    "nameserver",
    "ipv6_first",
    "workers",
    "user",
    "nofile",
    "use_syslog",
];

/// What stands around a list of servers.
const AROUND: &[&str] = &["version", "bytes_used", "bytes_remaining", "username"];

/// Users of a server.
const MOST_USERS: usize = 65_536;

/// Seconds of an idle flow of datagrams: not less than SIP022 asks for, and at most a day.
const IDLE: std::ops::RangeInclusive<u64> = 60..=86_400;

/// Read a configuration in JSON.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let hint = match text.starts_with('{') {
            true => "",
            false => {
                "; expected an object such as {\"method\": …, \"password\": …}, or a URL ss://…"
            }
        };
        ConfigError::Syntax(format!("not JSON: {error}{hint}"))
    })?;
    let Value::Object(object) = value else {
        return Err(ConfigError::Syntax(
            "not a JSON object; it looks like {\"method\": …, \"password\": …}".to_owned(),
        ));
    };
    match object.get("servers") {
        None => server(&object, ""),
        Some(Value::Array(servers)) => {
            for name in object.keys().filter(|&name| name != "servers") {
                let known = [AROUND, ELSEWHERE, FOR_PEOPLE]
                    .iter()
                    .any(|list| list.contains(&name.as_str()));
                if !known {
                    return Err(field(
                        &quote(name),
                        "unknown beside servers; put it into one of them",
                    ));
                }
            }
            let Some(Value::Object(first)) = servers.first() else {
                return Err(field(
                    "servers",
                    "expected a list with an object for each server",
                ));
            };
            let mut config = server(first, "servers[0].")?;
            if servers.len() > 1 {
                config.warnings.push(format!(
                    "of the {} in servers, the first one is used",
                    servers.len()
                ));
            }
            Ok(config)
        }
        Some(_) => Err(field("servers", "not a list")),
    }
}

fn server(object: &Map<String, Value>, path: &str) -> Result<Config, ConfigError> {
    let at = |name: &str, why: String| field(&format!("{path}{name}"), why);
    let mut warnings = Vec::new();
    for (name, value) in object {
        let name = name.as_str();
        if ["plugin", "plugin_opts", "plugin_args"].contains(&name) {
            if !matches!(value, Value::Null) && value.as_str() != Some("") {
                return Err(at(name, NO_PLUGINS.to_owned()));
            }
        } else if ELSEWHERE.contains(&name) {
            warnings.push(format!(
                "{path}{name} has no effect: the host has such settings"
            ));
        } else if name.is_empty() {
            return Err(ConfigError::Syntax("a field without a name".to_owned()));
        } else if !OF_SERVER.contains(&name)
            && !FOR_PEOPLE.contains(&name)
            && !ALIASES.iter().any(|(alias, _)| *alias == name)
        {
            return Err(at(
                &quote(name),
                format!("unknown; there are {}", OF_SERVER.join(", ")),
            ));
        }
    }
    let get = |name: &str| {
        let alias = ALIASES.iter().find(|(_, known)| *known == name);
        object
            .get(name)
            .or_else(|| object.get(alias?.0))
            .filter(|value| !value.is_null())
    };
    let text = |name: &str| match get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(at(name, "not a string".to_owned())),
    };
    let required = |name: &str| text(name)?.ok_or_else(|| at(name, "missing".to_owned()));

    let method = value::method(required("method")?).map_err(|why| at("method", why))?;
    let users = match get("users") {
        None => Vec::new(),
        Some(Value::Array(users)) if users.len() <= MOST_USERS => users
            .iter()
            .enumerate()
            .map(|(index, user)| self::user(method, user, &format!("{path}users[{index}]")))
            .collect::<Result<_, _>>()?,
        Some(Value::Array(_)) => return Err(at("users", format!("more than {MOST_USERS}"))),
        Some(_) => return Err(at("users", "not a list".to_owned())),
    };
    let mut config =
        assemble(method, required("password")?, users).map_err(|error| match error {
            ConfigError::Field(name, why) => at(&name, why),
            other => other,
        })?;
    config.server = match (text("server")?, get("server_port")) {
        (None, None) => None,
        // Where a server of another implementation listens, or without a port: the host's.
        (Some(_), None) => {
            return Err(at("server_port", "missing; server needs one".to_owned()));
        }
        (None, Some(_)) => return Err(at("server", "missing; server_port needs one".to_owned())),
        (Some(host), Some(port)) => {
            let port = port
                .as_u64()
                .and_then(|port| u16::try_from(port).ok())
                .filter(|&port| port != 0)
                .ok_or_else(|| at("server_port", "not a number from 1 to 65535".to_owned()))?;
            let server = value::destination(host, port)
                .ok_or_else(|| at("server", "not a host name or an address".to_owned()))?;
            Some(server)
        }
    };
    if let Some(target) = text("target")? {
        config.target = Some(target.parse::<Destination>().map_err(|_| {
            at(
                "target",
                "expected a host and a port, such as example.com:443".to_owned(),
            )
        })?);
    }
    config.mode = match text("mode")? {
        None | Some("tcp_and_udp") => Mode::Both,
        Some("tcp_only") => Mode::Streams,
        Some("udp_only") => Mode::Datagrams,
        Some(_) => {
            return Err(at(
                "mode",
                "expected tcp_and_udp, tcp_only or udp_only".to_owned(),
            ));
        }
    };
    if let Some(seconds) = get("udp_idle_timeout") {
        let seconds = seconds.as_u64().filter(|seconds| IDLE.contains(seconds));
        config.udp_idle_timeout = Duration::from_secs(seconds.ok_or_else(|| {
            let why = format!("expected seconds from {} to {}", IDLE.start(), IDLE.end());
            at("udp_idle_timeout", why)
        })?);
    }
    if let Some(prefix) = text("prefix")? {
        config.prefix = value::prefix(prefix).map_err(|why| at("prefix", why))?;
    }
    config.segmented_header = match get("segmented_header") {
        None => false,
        Some(Value::Bool(_)) if !method.is_2022() => {
            return Err(at(
                "segmented_header",
                format!("{method} has no such header"),
            ));
        }
        Some(Value::Bool(may)) => *may,
        Some(_) => return Err(at("segmented_header", "neither true nor false".to_owned())),
    };
    config.insecure = match text("gfw_report_compat")? {
        None => false,
        Some("insecure") if !method.is_2022() => {
            warnings.push(
                "gfw_report_compat: connections can be read in part and forged by who sees them"
                    .to_owned(),
            );
            config.mode = match config.mode {
                Mode::Datagrams => {
                    let why = "it is for streams, and mode is udp_only".to_owned();
                    return Err(at("gfw_report_compat", why));
                }
                mode => mode,
            };
            true
        }
        Some("insecure") => {
            return Err(at(
                "gfw_report_compat",
                format!("there is no such thing for {method}"),
            ));
        }
        Some(_) => {
            return Err(at(
                "gfw_report_compat",
                "expected insecure, which is what it is; better use prefix".to_owned(),
            ));
        }
    };
    config.warnings = warnings;
    Ok(config)
}

/// A configuration of these, and all else by default.
pub fn assemble(method: Method, password: &str, users: Vec<User>) -> Result<Config, ConfigError> {
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
        let why = format!("{method} knows no users; 2022-blake3-aes-128-gcm and -256-gcm do");
        return Err(field("users", why));
    }
    if config.keys.len() > 1 {
        let why = "a server with users has one key here, and each user its own";
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
    if let Some(unknown) = user.keys().find(|&key| key != "name" && key != "password") {
        return Err(field(
            &format!("{path}.{}", quote(unknown)),
            "unknown; there are name, password",
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
        return Err(field(path, format!("{method} knows no users")));
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

/// A word of the user's as it may stand in a message: one line, and not long.
fn quote(text: &str) -> String {
    let cut: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    match cut.is_empty() {
        true => "''".to_owned(),
        false => cut,
    }
}
