//! The fields of configurations as data, for the parsers that check by them and for the reference in the book.
//!
//! A configuration has a table of [`Described`] fields for each of its parts. [`fields`] takes the descriptions away at
//! compile time, so that a module holds what its parser needs and no prose. Tests compare the pages of the book with
//! the tables through [`page`].

use std::fmt;
use std::ops::RangeInclusive;

pub mod about;
pub mod page;

/// A field, as its parser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name in the file.
    pub name: &'static str,
    /// The values that it may have.
    pub kind: Kind,
    /// The meaning of its absence.
    pub absent: Absent,
}

/// A field, and a sentence about it for readers of the book.
pub type Described = (Field, &'static str);

/// The kind of a field's values. Texts are phrases such as "a password", with code in backticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Number {
        /// The unit in the plural, such as `seconds`; empty for a count of what the field names.
        unit: &'static str,
        /// The least that is accepted.
        least: u64,
        /// The most that is accepted.
        most: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A string, described by this phrase.
    Text(&'static str),
    /// A list, or a string with commas where the format has no lists, described by this phrase.
    List(&'static str),
    /// A table of fields, which the page describes under this name.
    Table(&'static str),
    /// Several kinds, described by this phrase.
    Any(&'static str),
}

/// A host, by name or by address, and a port.
pub const HOST_AND_PORT: Kind =
    Kind::Text("a host and a port, such as `example.com:443` or `[2001:db8::1]:443`");

/// An address and a port.
pub const ADDRESS_AND_PORT: Kind =
    Kind::Text("an address and a port, such as `192.0.2.1:443` or `[2001:db8::1]:443`");

/// The meaning of a field's absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// An error.
    Refused,
    /// The same as this number.
    Number(u64),
    /// The same as this value.
    Value(&'static str),
    /// A phrase such as "none".
    Means(&'static str),
}

impl Field {
    /// A field that may be absent.
    pub const fn new(name: &'static str, kind: Kind) -> Field {
        Field {
            name,
            kind,
            absent: Absent::Means("none"),
        }
    }

    /// A field for a whole number in this range. `unit` is a plural, or empty for a count.
    pub const fn number(name: &'static str, unit: &'static str, least: u64, most: u64) -> Field {
        Field::new(name, Kind::Number { unit, least, most })
    }

    /// A field for one of these words.
    pub const fn choice(name: &'static str, words: &'static [&'static str]) -> Field {
        Field::new(name, Kind::Choice(words))
    }

    /// A field for `true` or `false`, which is `false` if absent.
    pub const fn switch(name: &'static str) -> Field {
        Field::new(name, Kind::Switch).or("false")
    }

    /// The field, whose absence is an error.
    #[must_use]
    pub const fn required(self) -> Field {
        self.absent(Absent::Refused)
    }

    /// The field, with this default.
    #[must_use]
    pub const fn or(self, value: &'static str) -> Field {
        self.absent(Absent::Value(value))
    }

    /// The field, with this default.
    #[must_use]
    pub const fn or_number(self, number: u64) -> Field {
        self.absent(Absent::Number(number))
    }

    /// The field, with a default described by this phrase.
    #[must_use]
    pub const fn or_else(self, phrase: &'static str) -> Field {
        self.absent(Absent::Means(phrase))
    }

    const fn absent(mut self, absent: Absent) -> Field {
        self.absent = absent;
        self
    }

    /// The least and the largest number of a field for numbers.
    ///
    /// # Panics
    ///
    /// Panics for another kind of field; in a `const`, the compiler then stops.
    pub const fn range(&self) -> RangeInclusive<u64> {
        match self.kind {
            Kind::Number { least, most, .. } => least..=most,
            _ => panic!("not a field for numbers"),
        }
    }

    /// The default of a field for numbers.
    ///
    /// # Panics
    ///
    /// Panics if the field has none; in a `const`, the compiler then stops.
    pub const fn default_number(&self) -> u64 {
        match self.absent {
            Absent::Number(number) => number,
            _ => panic!("no number is the default"),
        }
    }

    /// Returns the number, if the field admits it.
    pub fn admit(&self, number: Option<u64>) -> Result<u64, String> {
        number
            .filter(|number| self.range().contains(number))
            .ok_or_else(|| self.expected())
    }

    /// Parses a number that the field admits.
    pub fn parse_number(&self, text: &str) -> Result<u64, String> {
        self.admit(text.parse().ok())
    }

    /// Returns the word of the field's choices that equals `text`, or the default for `None`. The result is the
    /// field's own word, so that a `match` on it needs no other.
    pub fn parse_choice(&self, text: Option<&str>) -> Result<&'static str, String> {
        let (Kind::Choice(words), default) = (self.kind, self.absent) else {
            unreachable!("{} has no choices", self.name);
        };
        match (text, default) {
            (None, Absent::Value(word)) => Ok(word),
            _ => {
                let found = words.iter().find(|word| Some(**word) == text);
                found.copied().ok_or_else(|| self.expected())
            }
        }
    }

    /// The error for a value of another kind: `expected …`.
    pub fn expected(&self) -> String {
        format!("expected {}", self.kind)
    }
}

/// Writes a phrase for an error, with code in double quotes.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.phrase(f, "\"")
    }
}

impl Kind {
    /// Writes the phrase, with `quote` around code.
    fn phrase(&self, f: &mut impl fmt::Write, quote: &str) -> fmt::Result {
        match *self {
            Kind::Switch => f.write_str("true or false"),
            Kind::Number { unit, least, most } => {
                let of = if unit.is_empty() { "" } else { " of " };
                write!(f, "a number{of}{unit} from {least} to {most}")
            }
            Kind::Choice(words) => {
                for (index, word) in words.iter().enumerate() {
                    f.write_str(match index {
                        0 => "",
                        _ if index + 1 == words.len() => " or ",
                        _ => ", ",
                    })?;
                    write!(f, "{quote}{word}{quote}")?;
                }
                Ok(())
            }
            Kind::Table(name) => write!(f, "a table of the fields of {quote}{name}{quote}"),
            Kind::Text(phrase) | Kind::List(phrase) | Kind::Any(phrase) => {
                f.write_str(&phrase.replace('`', quote))
            }
        }
    }
}

/// The fields of a table without their descriptions. As the value of a `static`, they leave the descriptions out of the
/// program.
pub const fn fields<const N: usize>(table: &[Described; N]) -> [Field; N] {
    let mut fields = [table[0].0; N];
    let mut index = 1;
    while index < N {
        fields[index] = table[index].0;
        index += 1;
    }
    fields
}

/// The field of this name.
///
/// # Panics
///
/// Panics if there is none; in a `const`, the compiler then stops.
pub const fn field(fields: &[Field], name: &str) -> Field {
    let mut index = 0;
    while index < fields.len() {
        if is_same(fields[index].name, name) {
            return fields[index];
        }
        index += 1;
    }
    panic!("no field has this name")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The names of these fields with commas between them, for an error about another name.
pub fn names(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| field.name).collect();
    names.join(", ")
}
