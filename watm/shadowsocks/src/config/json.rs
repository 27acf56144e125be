//! JSON: one server, or a document of SIP008 with several. Used by `config`.

use serde_json::{Map, Value};
use watm_core::ConfigError;

use super::ignored::without_effect;
use super::unique::Unique;
use super::value::field;
use super::{Config, server};

/// The fields around a list of servers.
const AROUND: &[&str] = &["version", "bytes_used", "bytes_remaining", "username"];

/// The version of SIP008.
const VERSION: u64 = 1;

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
        None => server::parse(&object, "", false),
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
    let mut config = server::parse(first, &format!("servers[{index}]."), is_sip008)?;
    if servers.len() > 1 {
        let many = servers.len();
        warnings.push(format!(
            "using the first of {many} servers that is not disabled"
        ));
    }
    config.warnings.extend(warnings);
    Ok(config)
}
