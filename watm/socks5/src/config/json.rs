//! The JSON structure of the configuration. No error quotes a value.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use watm_core::ConfigError;
use watm_schema::Field;

use super::{Config, MOST_BYTES, MOST_USERS, OF_ROOT, OF_USER, Proxy, User, field};

const EXAMPLE: &str = "expected an object such as {\"server\": \"socks5://example.com:1080\"}";

/// The fields, of which serde refuses unknown and repeated ones. Their values are checked here, because an error of serde
/// quotes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    users: Option<Value>,
    server: Option<Value>,
    user: Option<Value>,
    password: Option<Value>,
    target: Option<Value>,
    udp_address: Option<Value>,
    udp_idle_timeout: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneUser {
    name: Option<Value>,
    password: Option<Value>,
}

/// Parses a configuration.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    if !text.starts_with('{') {
        return Err(ConfigError::Syntax(format!("not a JSON object; {EXAMPLE}")));
    }
    let root: Root = serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => ConfigError::Syntax(error.to_string()),
        false => ConfigError::Syntax(format!("not JSON: {error}")),
    })?;
    let of = |name| watm_schema::field(&OF_ROOT, name);
    let user = sized_in(of("user"), root.user, 1)?;
    let password = sized_in(of("password"), root.password, 0)?;
    let server = string_in(of("server"), root.server)?;
    let idle = of("udp_idle_timeout");
    let idle = match &root.udp_idle_timeout {
        None => idle.default_number(),
        Some(value) => {
            let number = idle.admit(value.as_u64());
            number.map_err(|why| field(idle.name, why))?
        }
    };
    Ok(Config {
        users: users(root.users)?,
        proxy: proxy(server, user, password)?,
        target: parsed(of("target"), root.target)?,
        udp_address: parsed::<IpAddr>(of("udp_address"), root.udp_address)?,
        udp_idle: Duration::from_secs(idle),
    })
}

fn proxy(
    server: Option<String>,
    user: Option<String>,
    password: Option<String>,
) -> Result<Option<Proxy>, ConfigError> {
    let user = match (user, password) {
        (None, None) => None,
        (None, Some(_)) => return Err(field("user", "missing; password needs one")),
        (Some(name), password) => Some(User {
            name,
            password: password.unwrap_or_default(),
        }),
    };
    match (server, user) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(field("server", "missing; user needs one")),
        (Some(server), user) => Proxy::parse(&server, user).map(Some),
    }
}

fn users(value: Option<Value>) -> Result<Vec<User>, ConfigError> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let Value::Array(users) = value else {
        return Err(field("users", "expected a list"));
    };
    if users.is_empty() {
        let why = "an empty list; leave the field out to serve everybody";
        return Err(field("users", why));
    }
    if users.len() > MOST_USERS {
        return Err(field("users", format!("more than {MOST_USERS}")));
    }
    let mut names = BTreeSet::new();
    let mut known = Vec::new();
    for (index, value) in users.into_iter().enumerate() {
        let user =
            one_user(value).map_err(|(name, why)| field(&format!("users[{index}]{name}"), why))?;
        if !names.insert(user.name.clone()) {
            let why = "the name of an earlier user";
            return Err(field(&format!("users[{index}].name"), why));
        }
        known.push(user);
    }
    Ok(known)
}

/// Parses a user. An error has the rest of the path, and the reason.
fn one_user(value: Value) -> Result<User, (String, String)> {
    if !value.is_object() {
        let why = "expected an object such as {\"name\": …, \"password\": …}";
        return Err((String::new(), why.to_owned()));
    }
    let user = OneUser::deserialize(value).map_err(|error| (String::new(), error.to_string()))?;
    let one = |name: &str, value: Option<Value>| {
        let of = watm_schema::field(&OF_USER, name);
        let value = value.ok_or_else(|| (format!(".{name}"), "missing".to_owned()))?;
        string(&value, 1).ok_or_else(|| (format!(".{name}"), of.expected()))
    };
    let name = one("name", user.name)?;
    if name.chars().any(char::is_control) {
        return Err((".name".to_owned(), "has a control character".to_owned()));
    }
    Ok(User {
        name,
        password: one("password", user.password)?,
    })
}

/// The string in a field.
fn string_in(of: Field, value: Option<Value>) -> Result<Option<String>, ConfigError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(field(of.name, of.expected())),
    }
}

/// The string in a field, of at least `least` bytes and at most those of RFC 1929.
fn sized_in(of: Field, value: Option<Value>, least: usize) -> Result<Option<String>, ConfigError> {
    let parse = |value: Value| string(&value, least).ok_or_else(|| field(of.name, of.expected()));
    value.map(parse).transpose()
}

/// The value that a field's string means.
fn parsed<T: FromStr>(of: Field, value: Option<Value>) -> Result<Option<T>, ConfigError> {
    let parse = |text: String| text.parse().map_err(|_| field(of.name, of.expected()));
    string_in(of, value)?.map(parse).transpose()
}

fn string(value: &Value, least: usize) -> Option<String> {
    let text = value.as_str()?;
    (least..=MOST_BYTES)
        .contains(&text.len())
        .then(|| text.to_owned())
}
