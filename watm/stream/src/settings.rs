//! The configuration format of stream transports: lines of `key = "value"`.

use std::mem;
use std::str;

use watm_core::ConfigError;
use watm_schema::{Described, Field, HOST_AND_PORT, field, names};

/// The field `remote` of transports whose caller may name no destination.
pub const REMOTE: Described = (
    Field::new("remote", HOST_AND_PORT),
    "The destination of connections that name none, as of a fixed dialer.",
);

/// A configuration of lines of the form `key = "value"`, which is a part of TOML: a key has
/// letters, digits, `_` and `-`, a value any character but `"` and `\`. A number needs no quotes.
/// `#` begins a comment.
///
/// The transport's table of fields decides which keys there may be, and which values they may have.
#[derive(Debug)]
pub struct Settings {
    fields: &'static [Field],
    /// The pairs, in the order of the file.
    entries: Vec<(String, String)>,
}

impl Settings {
    /// Reads a file whose keys are names of these fields. Errors name the line or the key.
    pub fn parse(config: &[u8], fields: &'static [Field]) -> Result<Settings, ConfigError> {
        let text = str::from_utf8(config)
            .map_err(|_| ConfigError::Syntax("the configuration is not UTF-8 text".to_owned()))?;
        let mut entries: Vec<(String, String)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at = |why: &str| ConfigError::Syntax(format!("line {}: {why}", index + 1));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| at("expected key = \"value\""))?;
            let key = key.trim();
            let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if key.is_empty() || !key.chars().all(bare) {
                return Err(at(
                    "expected a key of letters, digits, '_' and '-' before '='",
                ));
            }
            if entries.iter().any(|(known, _)| known == key) {
                return Err(at(&format!("duplicate key {key}")));
            }
            let value = value.trim();
            let value = quoted(value)
                .or_else(|| number(value))
                .ok_or_else(|| at(&format!("{key}: expected a value in double quotes")))?;
            entries.push((key.to_owned(), value.to_owned()));
        }
        let known = |key: &str| fields.iter().any(|field| field.name == key);
        match entries.iter().find(|(key, _)| !known(key)) {
            None => Ok(Settings { fields, entries }),
            Some((key, _)) => Err(ConfigError::Field(
                key.clone(),
                format!("unknown field; expected one of {}", names(fields)),
            )),
        }
    }

    /// The value of the field `name`, if present.
    ///
    /// # Panics
    ///
    /// Like the methods below, panics if the table has no such field.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let name = field(self.fields, name).name;
        let (_, value) = self.entries.iter_mut().find(|(known, _)| known == name)?;
        Some(mem::take(value))
    }

    /// The number in the field `name`, or its default.
    pub fn take_number(&mut self, name: &str) -> Result<u64, ConfigError> {
        let field = field(self.fields, name);
        match self.take(name) {
            None => Ok(field.default_number()),
            Some(text) => refusal(name, field.parse_number(&text)),
        }
    }

    /// The word of its choices in the field `name`, or its default.
    pub fn take_choice(&mut self, name: &str) -> Result<&'static str, ConfigError> {
        let field = field(self.fields, name);
        let text = self.take(name);
        refusal(name, field.parse_choice(text.as_deref()))
    }

    /// The value in the field `name`, which `parse` understands.
    pub fn take_parsed<T: str::FromStr>(&mut self, name: &str) -> Result<Option<T>, ConfigError> {
        let field = field(self.fields, name);
        let parse = |text: String| refusal(name, text.parse().map_err(|_| field.expected()));
        self.take(name).map(parse).transpose()
    }
}

/// The result, with the field's name in an error.
fn refusal<T>(name: &str, result: Result<T, String>) -> Result<T, ConfigError> {
    result.map_err(|why| ConfigError::Field(name.to_owned(), why))
}

/// A decimal number, if only a comment follows it.
fn number(value: &str) -> Option<&str> {
    let number = value.split('#').next().unwrap_or_default().trim_end();
    let begins = number.starts_with(|c: char| c.is_ascii_digit());
    let digits = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    (begins && digits && number.parse::<f64>().is_ok()).then_some(number)
}

/// The text between quotes, if only a comment follows them.
fn quoted(value: &str) -> Option<&str> {
    let (inside, rest) = value.strip_prefix('"')?.split_once('"')?;
    let rest = rest.trim_start();
    let plain = !inside.contains('\\') && (rest.is_empty() || rest.starts_with('#'));
    plain.then_some(inside)
}
