//! Names, and patterns for them. Used by `clients`, `config` and `facts`.

/// Returns true if the DNS name `pattern`, whose first label may be `*`, matches `name`. Both are
/// in lower case.
pub fn is_host(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        None => pattern == name,
        Some(parent) => {
            let rest = name.split_once('.');
            rest.is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
        }
    }
}

/// Returns true if `text` matches `pattern`, where each `*` stands for any number of characters
/// except `separator`.
pub fn is_like(pattern: &str, text: &str, separator: char) -> bool {
    let mut parts = pattern.split('*');
    // Split always yields something.
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        // The first match is the best, because it leaves the longest rest. The last part must be at
        // the end.
        let found = match last {
            true => rest.strip_suffix(part).map(str::len),
            false => rest.find(part),
        };
        let Some(at) = found else {
            return false;
        };
        if rest[..at].contains(separator) {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// Normalises a DNS name, which may begin with `*.`. `None` if it is malformed.
pub fn host(text: &str) -> Option<String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let fits = !name.is_empty() && name.len() <= 253 && name.bytes().all(in_names);
    fits.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_one_label() {
        assert!(is_host("*.example.com", "a.example.com"));
        assert!(!is_host("*.example.com", "example.com"));
        assert!(!is_host("*.example.com", "a.b.example.com"));
        assert!(!is_host("*.example.com", ".example.com"));
        assert!(is_host("example.com", "example.com"));
    }

    #[test]
    fn a_star_is_a_part() {
        for (pattern, text, expected) in [
            ("spiffe://x/*", "spiffe://x/a", true),
            ("spiffe://x/*", "spiffe://x/a/b", false),
            ("spiffe://*/a", "spiffe://x/a", true),
            ("*@example.com", "me@example.com", true),
            ("*", "", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c", false),
            ("alice", "alice", true),
            ("alice", "alice2", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(is_like(pattern, text, '/'), expected, "{pattern} {text}");
        }
    }
}
