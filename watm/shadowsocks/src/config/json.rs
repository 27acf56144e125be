//! JSON: the fields of this transport and of other implementations, and documents of SIP008. Used
//! by `config` and `url`.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use watm_core::{ConfigError, Destination};
use watm_schema::{Absent, Field, Kind, names};

use super::fields::{OF_SERVER, OF_USER};
use super::unique::Unique;
use super::value::{self, field, quote};
use super::{Config, Mode, User};
use crate::method::Method;

/// The error for a configuration with a plugin.
pub const NO_PLUGINS: &str = "a module cannot start plugins; run the plugin in front of the \
                              server's port and remove this field";

/// Other implementations' names of the same fields.
const ALIASES: &[(&str, &str)] = &[
    ("address", "server"),
    ("port", "server_port"),
    ("udp_timeout", "udp_idle_timeout"),
];

/// Fields that only inform people.
const FOR_PEOPLE: &[&str] = &["id", "remarks", "name", "tag", "comment", "_comment"];

/// Fields that tune another program, or describe its other tasks. They concern the host or nothing
/// here, and ignoring them changes neither the traffic nor its way.
const ELSEWHERE: &[&str] = &[
    "balancer",
    "dns",
    "dns_cache_size",
    "dscp",
    "fast_open",
    "inbound_udp_allow_fragmentation",
    "ipv6_first",
    "ipv6_only",
    "keep_alive",
    "launchd_tcp_socket_name",
    "launchd_udp_socket_name",
    "local_address",
    "local_port",
    "locals",
    "log",
    "manager_address",
    "manager_port",
    "mptcp",
    "mtu",
    "nameserver",
    "no_delay",
    "nofile",
    "online_config",
    "outbound_udp_allow_fragmentation",
    "plugin_mode",
    "protocol",
    "reuse_port",
    "runtime",
    "security",
    "tcp_incoming_rcvbuf",
    "tcp_incoming_sndbuf",
    "tcp_outgoing_rcvbuf",
    "tcp_outgoing_sndbuf",
    "tcp_redir",
    "tcp_tproxy",
    "tcp_weight",
    "timeout",
    "tunnel_address",
    "udp_max_associations",
    "udp_mtu",
    "udp_weight",
    "use_syslog",
    "user",
    "workdir",
    "workers",
];

/// Fields that must not be ignored, because forbidden traffic would pass: who may connect, where
/// to, and by which way. Each with its advice.
const UNSAFE_TO_IGNORE: &[(&str, &str)] = &[
    ("plugin", NO_PLUGINS),
    ("plugin_opts", NO_PLUGINS),
    ("plugin_args", NO_PLUGINS),
    (
        "acl",
        "access control lists are not supported; set the allowed destinations in the host's \
         settings and remove this field",
    ),
    ("outbound_fwmark", OUTGOING),
    ("outbound_user_cookie", OUTGOING),
    ("outbound_bind_addr", OUTGOING),
    ("outbound_bind_interface", OUTGOING),
    ("local_ipv4_address", OUTGOING),
    ("local_ipv6_address", OUTGOING),
    (
        "outbound_proxy",
        "not supported; connections would bypass the proxy",
    ),
    (
        "port_password",
        "not supported; expected one port with server_port and password in each configuration",
    ),
    ("key", "not supported; expected a password"),
    ("auth", "one-time authentication is not supported"),
];

const OUTGOING: &str = "not supported; the host and its routes choose the outgoing path; remove \
                        this field";

/// The fields around a list of servers.
const AROUND: &[&str] = &["version", "bytes_used", "bytes_remaining", "username"];

/// The version of SIP008.
const VERSION: u64 = 1;

/// The most users of a server.
const MOST_USERS: usize = 65_536;

const SERVER: Field = watm_schema::field(&OF_SERVER, "server");
const PORT: Field = watm_schema::field(&OF_SERVER, "server_port");
const TARGET: Field = watm_schema::field(&OF_SERVER, "target");
const IDLE: Field = watm_schema::field(&OF_SERVER, "udp_idle_timeout");

/// The default idle time after which a datagram flow ends, as in other implementations.
pub(crate) const DEFAULT_UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(IDLE.default_number());

/// Parses a configuration in JSON.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let Unique(value) = serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => ConfigError::Syntax(error.to_string()),
        false => {
            let hint = match text.starts_with('{') {
                true => "",
                false => {
                    "; expected an object such as {\"method\": …, \"password\": …}, or a URL ss://…"
                }
            };
            ConfigError::Syntax(format!("not JSON: {error}{hint}"))
        }
    })?;
    let Value::Object(object) = value else {
        return Err(ConfigError::Syntax(
            "not a JSON object; it looks like {\"method\": …, \"password\": …}".to_owned(),
        ));
    };
    match object.get("servers") {
        None => server(&object, "", false),
        Some(Value::Array(servers)) => of_list(&object, servers),
        Some(_) => Err(field("servers", "not a list")),
    }
}

/// Parses the first usable one of these servers, which are in `object`.
fn of_list(object: &Map<String, Value>, servers: &[Value]) -> Result<Config, ConfigError> {
    let is_sip008 = match object.get("version") {
        None | Some(Value::Null) => false,
        Some(version) if version.as_u64() == Some(VERSION) => true,
        Some(_) => {
            let why = format!("expected {VERSION}, the version of SIP008");
            return Err(field("version", why));
        }
    };
    let mut warnings = Vec::new();
    let others = object.iter().filter(|(name, _)| *name != "servers");
    for (name, value) in others {
        let unknown = "unknown next to servers; move it into one of them";
        warnings.extend(without_effect(name, value, "", AROUND, is_sip008, unknown)?);
    }
    let enabled = |server: &&Value| server.get("disabled") != Some(&Value::Bool(true));
    let first = servers
        .iter()
        .enumerate()
        .find(|(_, server)| enabled(server));
    let Some((index, Value::Object(first))) = first else {
        let why = "expected a list of objects, with at least one server that is not disabled";
        return Err(field("servers", why));
    };
    let mut config = server(first, &format!("servers[{index}]."), is_sip008)?;
    if servers.len() > 1 {
        let many = servers.len();
        warnings.push(format!(
            "using the first of {many} servers that is not disabled"
        ));
    }
    config.warnings.extend(warnings);
    Ok(config)
}

/// Returns the warning about a field outside `known`, or an error if it must not be ignored.
fn without_effect(
    name: &str,
    value: &Value,
    path: &str,
    known: &[&str],
    custom: bool,
    unknown: &str,
) -> Result<Option<String>, ConfigError> {
    let refused = |why: &str| Err(field(&format!("{path}{}", quote(name)), why));
    if name.is_empty() {
        return Err(ConfigError::Syntax("a field without a name".to_owned()));
    }
    if let Some((_, why)) = UNSAFE_TO_IGNORE.iter().find(|(field, _)| *field == name) {
        return match is_nothing(value) {
            true => Ok(None),
            false => refused(why),
        };
    }
    if known.contains(&name) || FOR_PEOPLE.contains(&name) {
        return Ok(None);
    }
    match ELSEWHERE.contains(&name) {
        true => Ok(Some(format!(
            "{path}{name} has no effect; set it in the host"
        ))),
        false if custom => Ok(Some(format!("{path}{} has no effect here", quote(name)))),
        false => refused(unknown),
    }
}

/// Returns true if a field's value means the same as its absence.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}

/// Parses one server. `custom`: it may have unknown fields.
fn server(object: &Map<String, Value>, path: &str, custom: bool) -> Result<Config, ConfigError> {
    let at = |name: &str, why: String| field(&format!("{path}{name}"), why);
    let mut warnings = Vec::new();
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    let known: Vec<&str> = OF_SERVER
        .iter()
        .map(|field| field.name)
        .chain(aliases)
        .chain(["disabled", "version"])
        .collect();
    let unknown = format!("unknown; expected one of {}", names(&OF_SERVER));
    for (name, value) in object {
        warnings.extend(without_effect(name, value, path, &known, custom, &unknown)?);
    }
    for (alias, name) in ALIASES {
        if object.contains_key(*alias) && object.contains_key(*name) {
            return Err(at(alias, format!("duplicates {name}; remove one of them")));
        }
    }
    let get = |name: &str| {
        let alias = ALIASES.iter().find(|(_, known)| *known == name);
        object
            .get(name)
            .or_else(|| object.get(alias?.0))
            .filter(|value| !value.is_null())
    };
    let written = |name: &'static str| {
        let alias = ALIASES.iter().find(|(alias, known)| {
            *known == name && object.get(*alias).is_some_and(|value| !value.is_null())
        });
        alias.map_or(name, |(alias, _)| *alias)
    };
    for field in &OF_SERVER {
        let checked = match get(field.name) {
            // Other implementations admit any time.
            Some(value) if written(field.name) == "udp_timeout" && number(value).is_some() => {
                Ok(())
            }
            Some(value) => check(field, value),
            None if field.absent == Absent::Refused => Err("missing".to_owned()),
            None => Ok(()),
        };
        checked.map_err(|why| at(written(field.name), why))?;
    }
    let text = |name: &str| get(name).and_then(Value::as_str);

    let method =
        value::method(text("method").unwrap_or_default()).map_err(|why| at("method", why))?;
    let users = match get("users").and_then(Value::as_array) {
        None => Vec::new(),
        Some(users) if users.len() <= MOST_USERS => users
            .iter()
            .enumerate()
            .map(|(index, user)| self::user(method, user, &format!("{path}users[{index}]")))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(at("users", format!("more than {MOST_USERS}"))),
    };
    let password = text("password").unwrap_or_default();
    let mut config = assemble(method, password, users).map_err(|error| match error {
        ConfigError::Field(name, why) => at(&name, why),
        other => other,
    })?;
    config.server = match (get("server"), get("server_port")) {
        (None, None) => None,
        (None, Some(_)) => return Err(at("server", "missing; server_port needs one".to_owned())),
        (Some(servers), port) => Some(address(servers, port, path, &mut warnings)?),
    };
    if let Some(target) = text("target") {
        let parsed = target.parse::<Destination>();
        config.target = Some(parsed.map_err(|_| at("target", TARGET.expected()))?);
    }
    config.mode = match text("mode") {
        None | Some("tcp_and_udp") => Mode::Both,
        Some("tcp_only") => Mode::Streams,
        Some(_) => Mode::Datagrams,
    };
    if let Some(seconds) = get("udp_idle_timeout").and_then(number) {
        let kept = seconds.clamp(*IDLE.range().start(), *IDLE.range().end());
        if seconds != kept {
            let name = written("udp_idle_timeout");
            warnings.push(format!(
                "{path}{name}: {seconds} s is out of range; using {kept} s"
            ));
        }
        config.udp_idle_timeout = Duration::from_secs(kept);
    }
    if let Some(prefix) = text("prefix") {
        config.prefix = value::prefix(prefix).map_err(|why| at("prefix", why))?;
    }
    config.segmented_header = match get("segmented_header") {
        None => false,
        Some(_) if !method.is_2022() => {
            return Err(at(
                "segmented_header",
                format!("{method} does not have this header"),
            ));
        }
        Some(may) => *may == Value::Bool(true),
    };
    config.insecure = match text("gfw_report_compat") {
        None => false,
        Some(_) if !method.is_2022() => {
            warnings.push(
                "gfw_report_compat: anyone who sees the traffic can partly read and forge \
                 connections"
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
        Some(_) => {
            let why = format!("not supported by {method}");
            return Err(at("gfw_report_compat", why));
        }
    };
    config.warnings = warnings;
    Ok(config)
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
