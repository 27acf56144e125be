//! Plugin options, `key=value;key=value`, as both SIP003 and Tor's specification of pluggable
//! transports define them: a backslash escapes the character after it.

/// Parses the pairs, in order. A key without `=` has an empty value.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut pairs = Vec::new();
    let (mut key, mut value) = (String::new(), None::<String>);
    let mut characters = text.chars();
    loop {
        let character = characters.next();
        let literal = match character {
            Some('\\') => match characters.next() {
                Some(escaped) => escaped,
                None => return Err("ends with a backslash; must have a character after it".into()),
            },
            None | Some(';') => {
                if key.is_empty() {
                    return Err(format!("{text:?}: an option without a name"));
                }
                let pair = (std::mem::take(&mut key), value.take().unwrap_or_default());
                pairs.push(pair);
                match character {
                    Some(_) => continue,
                    None => return Ok(pairs),
                }
            }
            Some('=') if value.is_none() => {
                value = Some(String::new());
                continue;
            }
            Some(other) => other,
        };
        value.as_mut().unwrap_or(&mut key).push(literal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_told_apart_and_escapes_are_taken_back() {
        for (text, expected) in [
            ("", &[][..]),
            ("server", &[("server", "")]),
            ("a=1;b=2", &[("a", "1"), ("b", "2")]),
            ("a=x=y;server", &[("a", "x=y"), ("server", "")]),
            (r"a\=b=c\;d\\;e=\=", &[("a=b", r"c;d\"), ("e", "=")]),
            ("a=", &[("a", "")]),
        ] {
            let expected: Vec<(String, String)> = expected
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for text in ["a=b\\", "=b", "a=1;", ";", "a;;b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
