//! The configuration format of stream transports: lines of `key = "value"`.

use std::mem;
use std::str;

use watm_core::{ConfigError, Destination};

/// A configuration of lines of the form `key = "value"`, which is a part of TOML: a key has
/// letters, digits, `_` and `-`, a value any character but `"` and `\`. A number needs no quotes.
/// `#` begins a comment.
///
/// A transport takes the keys that it knows; [`finish`](Settings::finish) then refuses the rest.
#[derive(Debug)]
pub struct Settings {
    /// The pairs, in the order of the file.
    entries: Vec<(String, String)>,
    /// The keys that were requested.
    known: Vec<&'static str>,
}

impl Settings {
    /// Read a file. Errors name the line.
    pub fn parse(config: &[u8]) -> Result<Settings, ConfigError> {
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
                return Err(at(&format!("{key} is there twice")));
            }
            let value = value.trim();
            let value = quoted(value)
                .or_else(|| number(value))
                .ok_or_else(|| at(&format!("{key}: expected a value in double quotes")))?;
            entries.push((key.to_owned(), value.to_owned()));
        }
        Ok(Settings {
            entries,
            known: Vec::new(),
        })
    }

    /// The value of `key`, if present.
    pub fn take(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let (_, value) = self.entries.iter_mut().find(|(known, _)| known == key)?;
        Some(mem::take(value))
    }

    /// The value of `key` as a host and a port.
    pub fn take_destination(
        &mut self,
        key: &'static str,
    ) -> Result<Option<Destination>, ConfigError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| {
            ConfigError::Field(
                key.to_owned(),
                "expected a host and a port, such as example.com:443 or [2001:db8::1]:443"
                    .to_owned(),
            )
        })
    }

    /// Refuse keys that were not taken.
    pub fn finish(self) -> Result<(), ConfigError> {
        let unknown = |key: &String| !self.known.contains(&key.as_str());
        match self
            .entries
            .iter()
            .map(|(key, _)| key)
            .find(|key| unknown(key))
        {
            None => Ok(()),
            Some(key) => Err(ConfigError::Field(
                key.clone(),
                format!("there is no such field; there is {}", self.known.join(", ")),
            )),
        }
    }
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
