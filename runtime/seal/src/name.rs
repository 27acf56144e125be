//! Names of modules, channels, audiences and delegations, and patterns of them.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use crate::Refused;
use crate::bytes::malformed;

/// The longest name, in bytes.
const LIMIT: usize = 64;

/// The name of a module, a channel, an audience, a delegation, or a label of a socket: 1 to 64
/// characters of `a-z`, `0-9`, `-`, `_`, `.` and `/`, of which the first is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A pattern of names: one name, or a prefix followed by `*`. Examples: `wireguard`, `team-a/*`,
/// `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePattern(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NamePattern {
    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the pattern matches this name.
    pub fn has(&self, name: &Name) -> bool {
        match self.prefix() {
            Some(prefix) => name.0.starts_with(prefix),
            None => self.0 == name.0,
        }
    }

    /// Returns true if it matches every name that the other matches.
    pub fn covers(&self, other: &NamePattern) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(prefix), Some(other)) => other.starts_with(prefix),
            (Some(prefix), None) => other.0.starts_with(prefix),
            (None, Some(_)) => false,
            (None, None) => self.0 == other.0,
        }
    }

    /// Returns true if it matches one name only.
    pub fn is_exact(&self) -> bool {
        self.prefix().is_none()
    }

    fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }
}

fn check(text: &str) -> Result<(), Refused> {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/');
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && text.len() <= LIMIT && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err(malformed(
            "name",
            format!(
                "{:?}; must be 1 to {LIMIT} of a-z 0-9 - _ . / and begin with a letter or digit",
                text.chars().take(LIMIT).collect::<String>()
            ),
        )),
    }
}

impl FromStr for Name {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Name, Refused> {
        check(text)?;
        Ok(Name(text.to_owned()))
    }
}

impl FromStr for NamePattern {
    type Err = Refused;

    fn from_str(text: &str) -> Result<NamePattern, Refused> {
        match text.strip_suffix('*') {
            Some("") => {}
            Some(prefix) => check(prefix)?,
            None => check(text)?,
        }
        Ok(NamePattern(text.to_owned()))
    }
}

impl From<&Name> for NamePattern {
    fn from(name: &Name) -> NamePattern {
        NamePattern(name.0.clone())
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
