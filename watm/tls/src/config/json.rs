//! The JSON structure of the file. `fields` describes its fields.

use std::collections::BTreeMap;

use serde::Deserialize;
use watm_core::ConfigError;

use super::fields::OF_TICKETS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Root {
    pub certificates: Vec<Certificate>,
    pub no_match: NoMatch,
    pub alpn: Vec<String>,
    pub versions: Vec<Version>,
    pub ciphers: Option<Vec<String>>,
    pub clients: Option<Clients>,
    pub tickets: Tickets,
    pub limits: Limits,
    pub decoy: bool,
    pub proxy_in: Option<ProxyIn>,
    pub proxy_out: Option<ProxyOut>,
    pub server: Server,
}

impl Default for Root {
    fn default() -> Root {
        Root {
            certificates: Vec::new(),
            no_match: NoMatch::Default,
            alpn: Vec::new(),
            versions: vec![Version::OneTwo, Version::OneThree],
            ciphers: None,
            clients: None,
            tickets: Tickets::Switch(true),
            limits: Limits::default(),
            decoy: false,
            proxy_in: None,
            proxy_out: None,
            server: Server::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Certificate {
    pub chain: String,
    pub key: Option<String>,
    pub host_key: Option<String>,
    pub ocsp: Option<String>,
    pub names: Option<Vec<String>>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum NoMatch {
    Default,
    Abort,
}

#[derive(Deserialize, PartialEq, Eq)]
pub enum Version {
    #[serde(rename = "1.2")]
    OneTwo,
    #[serde(rename = "1.3")]
    OneThree,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Clients {
    pub certificates: Wanted,
    pub roots: Option<String>,
    pub crls: Option<String>,
    #[serde(default)]
    pub stale_crls: StaleCrls,
    #[serde(default)]
    pub allow: Vec<String>,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum StaleCrls {
    #[default]
    Refuse,
    Accept,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    None,
    Optional,
    Required,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, false or {\"secret\": \"<base64>\", \"hours\": 12}"
)]
pub enum Tickets {
    Switch(bool),
    Options(TicketOptions),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TicketOptions {
    pub secret: Option<String>,
    pub hours: u32,
}

impl Default for TicketOptions {
    fn default() -> TicketOptions {
        TicketOptions {
            secret: None,
            hours: const { watm_schema::field(&OF_TICKETS, "hours").default_number() as u32 },
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    pub handshake: Option<u64>,
    pub idle: Option<u64>,
    pub lifetime: Option<u64>,
}

/// The fields of the transport `proxy-protocol`, which parses them.
#[derive(Deserialize)]
pub struct ProxyIn(pub BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProxyOut {
    pub version: ProxyVersion,
    #[serde(default)]
    pub certificate: bool,
    #[serde(default)]
    pub unique_id: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyVersion {
    V1,
    V2,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Server {
    pub remote: Option<String>,
    pub name: Option<String>,
    pub verify: Option<String>,
    pub roots: Option<String>,
    pub pins: Vec<String>,
    pub alpn: Vec<String>,
    pub chain: Option<String>,
    pub key: Option<String>,
    pub host_key: Option<String>,
}

/// Parses JSON. Errors name the field.
pub fn parse(text: &str) -> Result<Root, ConfigError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let root = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match inner.classify() {
            serde_json::error::Category::Data if path != "." => {
                ConfigError::Field(path, inner.to_string())
            }
            _ => ConfigError::Syntax(inner.to_string()),
        }
    })?;
    reader
        .end()
        .map_err(|error| ConfigError::Syntax(error.to_string()))?;
    Ok(root)
}

/// Reads a configuration of PEM only: with a key it is the served certificate, without one the
/// roots of servers.
pub fn of_pem(text: &str) -> Root {
    let mut root = Root::default();
    if text.contains("PRIVATE KEY-----") {
        root.certificates.push(Certificate {
            chain: text.to_owned(),
            key: Some(text.to_owned()),
            host_key: None,
            ocsp: None,
            names: None,
        });
    } else {
        root.server.roots = Some(text.to_owned());
    }
    root
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Map, Value, json};
    use watm_schema::{Absent, Described, Kind};

    use super::super::fields;
    use super::*;

    fn refused<T: DeserializeOwned>(object: Map<String, Value>) -> String {
        match serde_json::from_value::<T>(object.into()) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    /// The names that serde would have expected.
    fn expected(error: &str) -> Vec<&str> {
        let (_, list) = error.split_once(", expected ").expect(error);
        list.split('`').skip(1).step_by(2).collect()
    }

    /// Compares a type with its table: the names, the required fields and the choices.
    fn compare<T: DeserializeOwned>(table: &[Described]) {
        let object = |required: &str| -> Map<String, Value> {
            let others = table.iter().map(|(field, _)| field);
            let others =
                others.filter(|field| field.absent == Absent::Refused && field.name != required);
            let value = |kind: Kind| match kind {
                Kind::Choice(words) => json!(words[0]),
                _ => json!("text"),
            };
            others
                .map(|field| (field.name.to_owned(), value(field.kind)))
                .collect()
        };
        let mut unknown = object("");
        unknown.insert("odd".to_owned(), json!(1));
        let names: Vec<_> = table.iter().map(|(field, _)| field.name).collect();
        assert_eq!(expected(&refused::<T>(unknown)), names);
        assert!(serde_json::from_value::<T>(object("").into()).is_ok());
        for (field, _) in table {
            if field.absent == Absent::Refused {
                let error = refused::<T>(object(field.name));
                assert_eq!(error, format!("missing field `{}`", field.name));
            }
            let mut wrong = object("");
            let (value, right) = match field.kind {
                Kind::Choice(words) => {
                    wrong.insert(field.name.to_owned(), json!("odd"));
                    assert_eq!(expected(&refused::<T>(wrong.clone())), words);
                    continue;
                }
                Kind::Any(_) => continue,
                Kind::Switch => (json!("x"), "a boolean"),
                Kind::Number { .. } => (json!("x"), "u"),
                Kind::Text(_) => (json!(1), "a string"),
                Kind::List(_) => (json!("x"), "a sequence"),
                Kind::Table(_) => (json!("x"), "struct"),
            };
            wrong.insert(field.name.to_owned(), value);
            let error = refused::<T>(wrong);
            let (_, wanted) = error.split_once(", expected ").expect(&error);
            assert!(wanted.starts_with(right), "{}: {error}", field.name);
        }
    }

    #[test]
    fn the_types_have_the_fields_of_the_tables() {
        compare::<Root>(&fields::ROOT);
        compare::<Certificate>(&fields::CERTIFICATE);
        compare::<Clients>(&fields::CLIENTS);
        compare::<TicketOptions>(&fields::TICKETS);
        compare::<Limits>(&fields::LIMITS);
        compare::<ProxyOut>(&fields::PROXY_OUT);
        compare::<Server>(&fields::SERVER);
    }

    #[test]
    fn the_defaults_are_those_of_the_tables() {
        let absent = |table: &[Described], name: &str| {
            let found = table.iter().find(|(field, _)| field.name == name);
            found.expect("a field").0.absent
        };
        let root = Root::default();
        assert!(root.no_match == NoMatch::Default && !root.decoy);
        assert_eq!(absent(&fields::ROOT, "no-match"), Absent::Value("default"));
        assert_eq!(absent(&fields::ROOT, "decoy"), Absent::Value("false"));
        assert!(StaleCrls::default() == StaleCrls::Refuse);
        assert_eq!(
            absent(&fields::CLIENTS, "stale-crls"),
            Absent::Value("refuse")
        );
        let handshake = watm_stream::Limits::default().handshake.as_secs();
        assert_eq!(
            absent(&fields::LIMITS, "handshake"),
            Absent::Number(handshake)
        );
    }
}
