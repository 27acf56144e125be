//! Numbers, ranges and times of a script. The runner reads every field with them.

use std::collections::BTreeMap;
use std::time::Duration;

/// The values that expressions may name.
pub type Names = BTreeMap<String, f64>;

/// The bounds of a value, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub least: f64,
    pub most: f64,
}

impl Range {
    pub fn has(&self, value: f64) -> bool {
        self.least <= value && value <= self.most
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.least == self.most {
            true => write!(f, "{}", self.least),
            false => write!(f, "{}..{}", self.least, self.most),
        }
    }
}

/// A sum of products, such as `1+10*mss`. Without spaces.
pub fn number(text: &str, names: &Names) -> Result<f64, String> {
    let mut sum = 0.0;
    let (mut sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    loop {
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        sum += sign * product(&rest[..end], names)?;
        match rest.get(end..end + 1) {
            Some("+") => sign = 1.0,
            Some(_) => sign = -1.0,
            None => return Ok(sum),
        }
        rest = &rest[end + 1..];
    }
}

fn product(text: &str, names: &Names) -> Result<f64, String> {
    let mut result = 1.0;
    for factor in text.split('*') {
        result *= match factor.parse::<f64>() {
            Ok(value) if value.is_finite() => value,
            _ => *names
                .get(factor)
                .ok_or_else(|| format!("{factor:?} is neither a number nor a known name"))?,
        };
    }
    Ok(result)
}

/// A whole number.
pub fn whole(text: &str, names: &Names) -> Result<i64, String> {
    Ok(number(text, names)?.round() as i64)
}

/// `A..B`, `A..` or `A`.
pub fn range(text: &str, names: &Names) -> Result<Range, String> {
    let (least, most) = match text.split_once("..") {
        Some((least, "")) => (number(least, names)?, f64::INFINITY),
        Some((least, most)) => (number(least, names)?, number(most, names)?),
        None => {
            let value = number(text, names)?.round();
            (value, value)
        }
    };
    match least <= most {
        true => Ok(Range { least, most }),
        false => Err(format!("{text:?} is an empty range")),
    }
}

/// A duration, such as `1.5s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(|| format!("{text:?} has no unit"))?;
    let value: f64 = text[..unit]
        .parse()
        .map_err(|_| format!("{text:?} is no time"))?;
    let seconds = match &text[unit..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("{other:?} is no unit of time")),
    };
    Ok(Duration::from_nanos((value * seconds * 1e9).round() as u64))
}

/// The least and the most of `A..B` or `A`.
pub fn durations(text: &str) -> Result<(Duration, Duration), String> {
    let (least, most) = match text.split_once("..") {
        Some((least, most)) => (duration(least)?, duration(most)?),
        None => (duration(text)?, duration(text)?),
    };
    match least <= most {
        true => Ok((least, most)),
        false => Err(format!("{text:?} is an empty range")),
    }
}

/// The words of a line, without its comment. A text in quotes is one word, with its first quote.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let end = match rest.strip_prefix('"') {
            Some(text) => 1 + text.find('"').ok_or("a text without its second quote")?,
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        words.push(rest[..end].to_string());
        rest = rest[end..].trim_start_matches('"').trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_of_names_are_numbers() {
        let names = Names::from([("mss".into(), 1380.0), ("$i".into(), 2.0)]);
        assert_eq!(number("1+10*mss", &names), Ok(13801.0));
        assert_eq!(number("3*mss-$i*10", &names), Ok(4120.0));
        assert_eq!(number("-5+$i", &names), Ok(-3.0));
        assert!(number("1+x", &names).is_err());
        assert!(number("", &names).is_err());
        assert!(range("5..4", &names).is_err());
        assert!(range("5..6", &names).is_ok_and(|range| range.has(6.0) && !range.has(7.0)));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(duration("15").is_err());
        assert!(duration("15days").is_err());
        assert!(durations("2ms..1ms").is_err());
    }

    #[test]
    fn a_text_is_one_word() {
        let expected = ["app", "write", "\"a b", "x"];
        assert_eq!(words("app write \"a b\" x # y").unwrap(), expected);
        assert!(words("app write \"a b").is_err());
    }
}
