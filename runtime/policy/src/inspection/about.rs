//! A module's description of itself, from its section `watm.about`. Used by `outline`, and shown by
//! programs.

use serde_derive::{Deserialize, Serialize};
use watm_types::{Network, Steer};

use super::inspect::shown;

/// The section with the description.
pub(super) const SECTION: &str = "watm.about";

/// The largest section, in bytes.
const LARGEST: usize = 64 << 10;

/// The version of the format that this host knows.
const FORMAT: u64 = 1;

/// The most characters of a name or a title.
const LONGEST_NAME: usize = 64;

/// A module's description of itself: claims, which grant nothing.
///
/// Members of the JSON that this host does not know are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct About {
    /// The version of the format.
    about: u64,
    /// The name of the transport, in lower case with hyphens.
    pub name: String,
    /// The name as people write it.
    pub title: String,
    /// A sentence about the transport.
    #[serde(default)]
    pub summary: String,
    /// True if it accepts connections or peers, and offers their flows to the application.
    #[serde(default)]
    pub accepts: bool,
    /// True if it carries connections of the application.
    #[serde(default)]
    pub dials: bool,
    /// True if flows name a destination.
    #[serde(default)]
    pub destinations: bool,
    /// True if only one instance may serve.
    #[serde(default)]
    pub alone: bool,
    /// The usual port of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The first step of a person who uses a client configuration, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The sockets that a server needs.
    #[serde(default)]
    pub sockets: Vec<Socket>,
    /// The datagrams that name one of several sockets on one address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steer: Vec<Steer>,
    /// The formats of its configuration.
    #[serde(default)]
    pub formats: Vec<Format>,
}

/// A socket that a module opens by its label.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Socket {
    /// The label.
    pub label: String,
    /// The protocol: `tcp`, `udp`, or `packets` for a device. Others are of later hosts.
    pub transport: String,
}

/// A format of configurations.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Format {
    /// The name, such as `json`.
    pub name: String,
    /// The tables. The first is the outermost one.
    #[serde(default)]
    pub tables: Vec<Table>,
}

/// A table of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Table {
    /// The name.
    pub name: String,
    /// The fields.
    #[serde(default)]
    pub fields: Vec<Field>,
}

/// A field of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Field {
    /// The name.
    pub name: String,
    /// The kind of its values: `switch`, `number`, `choice`, `text`, `list`, `table` or `any`. Others
    /// are of later hosts.
    pub kind: String,
    /// A phrase for the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The words of a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// The unit of a number, in the plural; empty for a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The least number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// The largest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// The table that a value is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// True if the field must be there.
    #[serde(default)]
    pub required: bool,
    /// The value that an absent field means: a number or a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Default>,
    /// A phrase for the meaning of an absent field without a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// A sentence about the field.
    #[serde(default)]
    pub meaning: String,
}

/// A default value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Default {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl About {
    /// Returns the protocols of its sockets, each once.
    pub fn networks(&self) -> Vec<Network> {
        let all = [("udp", Network::Udp), ("tcp", Network::Tcp)];
        let opened = |name: &str| self.sockets.iter().any(|socket| socket.transport == name);
        all.into_iter()
            .filter(|(name, _)| opened(name))
            .map(|(_, network)| network)
            .collect()
    }

    /// Returns the description in JSON, without the members that this host does not know.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and lists are JSON")
    }
}

/// Parses a section. Returns `None` for a version of the format that this host does not know. The
/// error says what is wrong.
pub(super) fn parse(section: &[u8]) -> Result<Option<About>, String> {
    #[derive(Deserialize)]
    struct Version {
        about: u64,
    }
    let wrong = |reason: &str| format!("the section {SECTION} {reason}");
    if section.len() > LARGEST {
        return Err(wrong(&format!(
            "has {} bytes; at most {} KiB are read",
            section.len(),
            LARGEST >> 10
        )));
    }
    let not_json = |error: serde_json::Error| {
        wrong(&format!(
            "must have a description in JSON: {}",
            shown(&error.to_string())
        ))
    };
    let Version { about } = serde_json::from_slice(section).map_err(not_json)?;
    if about != FORMAT {
        return Ok(None);
    }
    let about: About = serde_json::from_slice(section).map_err(not_json)?;
    let named = |name: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(plain)
    };
    if !named(&about.name) {
        return Err(wrong(&format!(
            "has the name \"{}\"; must be at most {LONGEST_NAME} lower-case letters, digits and hyphens",
            shown(&about.name)
        )));
    }
    let printable = |text: &str| !text.chars().any(char::is_control);
    if !printable(&about.title) || about.title.chars().count() > LONGEST_NAME {
        return Err(wrong(&format!(
            "has the title \"{}\"; must be at most {LONGEST_NAME} characters of one line",
            shown(&about.title)
        )));
    }
    let sentences = [Some(&about.summary), about.client.as_ref()];
    if !sentences.into_iter().flatten().all(|text| printable(text)) {
        return Err(wrong("has a sentence with control characters; remove them"));
    }
    if about.steer.len() > Steer::MOST {
        return Err(wrong(&format!(
            "steers {} kinds of datagrams; must be at most {}",
            about.steer.len(),
            Steer::MOST
        )));
    }
    let far = |steer: &&Steer| steer.byte > Steer::LAST_BYTE;
    if let Some(Steer { byte, .. }) = about.steer.iter().find(far) {
        return Err(wrong(&format!(
            "steers datagrams by byte {byte}; must be at most {}",
            Steer::LAST_BYTE
        )));
    }
    Ok(Some(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_and_unknown_members_are_ignored() {
        let section = br#"{"about":1,"name":"x-1","title":"X","later":[1],"sockets":[
            {"label":"listen","transport":"tcp","more":1},{"label":"a","transport":"sctp"}],"port":9,
            "steer":[{"type":2,"byte":7,"more":1}],
            "formats":[{"name":"json","tables":[{"name":"x","fields":[
            {"name":"a","kind":"number","default":3},{"name":"b","kind":"text","required":true}]}]}]}"#;
        let about = parse(section).unwrap().unwrap();
        assert_eq!((about.name.as_str(), about.port), ("x-1", Some(9)));
        assert_eq!(about.networks(), [Network::Tcp]);
        assert_eq!(about.steer, [Steer { kind: 2, byte: 7 }]);
        let [a, b] = about.formats[0].tables[0].fields.as_slice() else {
            panic!("two fields")
        };
        assert_eq!(a.default, Some(Default::Number(3)));
        assert!(b.required && !a.required);
    }

    #[test]
    fn another_version_is_left_alone() {
        assert_eq!(parse(br#"{"about":2,"name":7}"#), Ok(None));
    }

    #[test]
    fn a_wrong_description_is_named() {
        let large = vec![b' '; LARGEST + 1];
        let many = [r#"{"type":1,"byte":7}"#; 17].join(",");
        let many = format!(r#"{{"about":1,"name":"x","title":"X","steer":[{many}]}}"#).into_bytes();
        for (section, said) in [
            (&b""[..], "must have a description in JSON: EOF"),
            (b"{}", "missing field `about`"),
            (br#"{"about":1,"name":"x"}"#, "missing field `title`"),
            (
                br#"{"about":1,"name":"X","title":"X"}"#,
                "has the name \"X\"",
            ),
            (br#"{"about":1,"name":"","title":"X"}"#, "has the name \"\""),
            (br#"{"about":1,"name":"x","title":"a\nb"}"#, "of one line"),
            (
                br#"{"about":1,"name":"x","title":"X","summary":"a\u001b[1m"}"#,
                "control characters",
            ),
            (
                br#"{"about":1,"name":"x","title":"X","port":65536}"#,
                "65536",
            ),
            (
                br#"{"about":1,"name":"x","title":"X","steer":[{"type":1,"byte":1232}]}"#,
                "by byte 1232",
            ),
            (&many, "steers 17 kinds"),
            (&large, "at most 64 KiB"),
        ] {
            let error = parse(section).unwrap_err();
            assert!(error.starts_with("the section watm.about "), "{error}");
            assert!(error.contains(said), "{error}");
        }
    }
}
