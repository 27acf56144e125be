//! The field of a configuration that holds a bad network. Parsers of configurations call it.

use serde_json::Value;
use watm_schema::{Field, Kind};

use crate::rule::Rule;
use crate::words::{Uploader, parse};

/// Returns the field, under the name that it has in a format.
pub const fn field(name: &'static str) -> Field {
    const RULES: Kind = Kind::List(
        "networks by name or in words, such as `3g` or `delay=100ms loss=1%`, separated by commas",
    );
    Field::new(name, RULES).or("off")
}

/// Reads the field of a JSON object. Names stand for the connection of the peer. The error names the right
/// values.
pub fn of_json(value: Option<&Value>) -> Result<Vec<Rule>, String> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => parse(text, Uploader::Peer),
        Some(_) => Err(field("network").expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_words_as_text() {
        assert_eq!(of_json(None), Ok(Vec::new()));
        assert_eq!(of_json(Some(&"3g".into())).unwrap().len(), 2);
        for (wrong, expected) in [
            (Value::from(3), "expected networks by name or in words"),
            ("loss=2".into(), "loss: '2' is not a share"),
        ] {
            let why = of_json(Some(&wrong)).unwrap_err();
            assert!(why.starts_with(expected), "{why}");
        }
    }
}
