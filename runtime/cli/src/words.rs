//! Words for people: units, and a module's permissions as sentences. Used by `status`.
//!
//! The page in mitmweb uses the same words, in `host-python/python/mitmproxy_watm/words.py`. Both are
//! tested against `tests/words.json`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use watm_runtime::printable;
use watm_sealing::{counted, grouped};

/// Actions that no module has an import for.
const FIXED: [&str; 2] = ["read or write files", "start other programs"];

/// Permissions that are on or off, and their words.
const POWERS: [(&str, &str); 4] = [
    ("host_crypto", "let the host run its ciphers"),
    ("host_keys", "let the host sign with keys that stay there"),
    ("bind_transparent", "connect from its clients' addresses"),
    ("capture", "copy packets and keys to a file that you name"),
];

const UNSEALED: &str = "has no seal, and therefore no limits besides those of this program";

/// Returns text from a file of somebody else, safe for a terminal and a line of its own.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    /// The most bytes: more than a module logs in one record.
    const LONGEST: usize = 8192;
    printable(text, LONGEST)
}

/// Formats a number of bytes in binary units: `1.4 MiB`.
pub(crate) fn size(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest.round() < 1024.0 {
            return match unit {
                "B" => format!("{rest:.0} B"),
                _ => format!("{} {unit}", digits(rest)),
            };
        }
        rest /= 1024.0;
    }
    format!("{} TiB", digits(rest))
}

/// Formats a duration in seconds with at most two units: `2 h 10 min`.
pub(crate) fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let and = |rest: u64, unit: &str| match rest {
        0 => String::new(),
        _ => format!(" {rest} {unit}"),
    };
    match (minutes, hours) {
        (0, _) => format!("{seconds} s"),
        (_, 0) => format!("{minutes} min"),
        (_, 1..24) => format!("{hours} h{}", and(minutes % 60, "min")),
        _ => format!("{}{}", counted(hours / 24, "day"), and(hours % 24, "h")),
    }
}

/// Formats the time since an event: `just now`, `12 s ago`.
pub(crate) fn age(seconds: f64) -> String {
    match seconds < 1.0 {
        true => "just now".to_owned(),
        false => format!("{} ago", span(seconds)),
    }
}

/// Formats the time of a peer's last handshake.
pub(crate) fn handshake(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "not connected yet".to_owned(), age)
}

/// Formats a round-trip time in seconds: `4.2 ms`.
pub(crate) fn milliseconds(seconds: f64) -> String {
    format!("{} ms", digits(seconds * 1e3))
}

/// Formats a share between 0 and 1: `1.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", digits(share * 1e2))
}

/// Formats an amount of CPU time in thousandths of a core: `4.3 % of a core`.
pub(crate) fn cores(permille: f64) -> String {
    match permille {
        ..1000.0 => format!("{} % of a core", digits(permille / 10.0)),
        1000.0 => "one core".to_owned(),
        _ => format!("{} cores", digits(permille / 1000.0)),
    }
}

/// Describes what a module may do and what it cannot, by the fields of its capabilities in
/// `/status`. `null` means that it has no seal.
pub(crate) fn permissions(granted: &Value) -> Vec<String> {
    let cannot = |words: &str| format!("cannot {words}");
    if granted.is_null() {
        let fixed = FIXED.into_iter().map(cannot);
        return [UNSEALED.to_owned()].into_iter().chain(fixed).collect();
    }
    let number = |name: &str| granted[name].as_u64().unwrap_or_default();
    let power = |wanted: bool| {
        POWERS
            .into_iter()
            .filter(move |(name, _)| (granted[*name] == true) == wanted)
            .map(|(_, words)| words)
    };
    let (sockets, connect) = (texts(&granted["sockets"]), texts(&granted["connect"]));
    let mut may = accepts(&sockets);
    may.extend(reaches(&connect));
    may.extend(power(true).map(str::to_owned));
    may.push(format!(
        "use up to {} of memory and {}",
        size(number("memory_bytes") as f64),
        cores(number("cpu_permille") as f64)
    ));
    may.push(format!(
        "have {} and {} at once",
        counted(number("flows"), "flow"),
        counted(number("instances"), "instance")
    ));
    let reached = |network: &str| connect.iter().any(|pattern| pattern.starts_with(network));
    let missing = [
        (sockets.is_empty(), "accept traffic"),
        (!reached("tcp://"), "open connections"),
        (
            !reached("udp://"),
            "send UDP to addresses that it has not heard from",
        ),
    ];
    let missing = missing.into_iter().filter(|(missing, _)| *missing);
    let missing = missing.map(|(_, words)| words);
    let may = may.iter().map(|words| format!("may {words}"));
    may.chain(missing.chain(power(false)).chain(FIXED).map(cannot))
        .collect()
}

/// Describes what a module uses now, by the fields of its usage in `/status`.
pub(crate) fn usage(used: &Value) -> Vec<String> {
    let number = |name: &str| used[name].as_u64().unwrap_or_default();
    let mut said = vec![
        format!(
            "{} of memory, {} at most",
            size(number("memory_bytes") as f64),
            size(number("memory_peak_bytes") as f64)
        ),
        cores(number("cpu_permille") as f64),
        format!(
            "{}, {} in all",
            counted(number("flows"), "open flow"),
            grouped(number("flows_opened"))
        ),
    ];
    for (name, words) in [
        ("host_crypto", "the host's ciphers"),
        ("host_keys", "the host's keys"),
    ] {
        if used[name] == true {
            said.push(words.to_owned());
        }
    }
    said
}

/// Describes what a generation does, by its fields in `/status`.
pub(crate) fn generation(known: &Value) -> String {
    let flows = known["flows"].as_u64().unwrap_or_default();
    let seconds = |name: &str| known[name].as_f64();
    match (seconds("draining_seconds"), flows) {
        (None, _) => format!(
            "in service for {}",
            span(seconds("age_seconds").unwrap_or_default())
        ),
        (Some(_), 0) => "stops soon".to_owned(),
        (Some(since), _) => format!("finishes {}, for {}", counted(flows, "flow"), span(since)),
    }
}

fn texts(values: &Value) -> Vec<&str> {
    let values = values.as_array().into_iter().flatten();
    values.filter_map(Value::as_str).collect()
}

/// Joins parts as a sentence does: `a, b and c`.
fn listed(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

fn accepts(sockets: &[&str]) -> Vec<String> {
    let mut labels: Vec<&str> = Vec::new();
    let mut networks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (network, label) in sockets.iter().filter_map(|socket| socket.split_once(' ')) {
        if !labels.contains(&label) {
            labels.push(label);
        }
        let network = network.to_ascii_uppercase();
        networks.entry(label).or_default().push(network);
    }
    let one = |label: &str| {
        let mut names = networks.get(label).cloned().unwrap_or_default();
        names.sort_unstable();
        match label {
            "listen" => format!("accept {}", listed(&names, "and")),
            _ => format!("accept {} on the socket {label}", listed(&names, "and")),
        }
    };
    labels.into_iter().map(one).collect()
}

fn reaches(patterns: &[&str]) -> Vec<String> {
    let to = |network: &str| -> Vec<String> {
        let places = patterns.iter().filter_map(|it| it.strip_prefix(network));
        places.map(place).collect()
    };
    [("tcp://", "connect by TCP to"), ("udp://", "send UDP to")]
        .into_iter()
        .map(|(network, words)| (words, to(network)))
        .filter(|(_, places)| !places.is_empty())
        .map(|(words, places)| format!("{words} {}", listed(&places, "or")))
        .collect()
}

fn place(pattern: &str) -> String {
    let (host, port) = pattern.rsplit_once(':').unwrap_or((pattern, "*"));
    let host = match host.strip_prefix("*.") {
        _ if host == "*" => "any address".to_owned(),
        Some(suffix) => format!("any name below {suffix}"),
        None => host.to_owned(),
    };
    match port {
        "*" => host,
        _ if port.contains('-') => format!("{host} ports {port}"),
        _ => format!("{host} port {port}"),
    }
}

/// Formats a number with one decimal below ten, and none if that is 0.
fn digits(number: f64) -> String {
    if (number * 10.0).round() >= 100.0 {
        return format!("{number:.0}");
    }
    let text = format!("{number:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases that `host-python` is tested with too: arguments, and their words.
    fn cases() -> Value {
        serde_json::from_str(include_str!("../../../tests/words.json")).expect("JSON")
    }

    #[test]
    fn words_are_those_of_the_page() {
        let cases = cases();
        let mut tested = 0;
        for (name, cases) in cases.as_object().expect("functions") {
            for case in cases.as_array().expect("cases") {
                let (given, expected) = (&case[0], &case[1]);
                let number = given.as_f64().unwrap_or_default();
                let said: Value = match name.as_str() {
                    "size" => size(number).into(),
                    "span" => span(number).into(),
                    "age" => age(number).into(),
                    "handshake" => handshake(given.as_f64()).into(),
                    "milliseconds" => milliseconds(number).into(),
                    "percent" => percent(number).into(),
                    "cores" => cores(number).into(),
                    "permissions" => permissions(given).into(),
                    "usage" => usage(given).into(),
                    "generation" => generation(given).into(),
                    other => panic!("no function {other}"),
                };
                assert_eq!(&said, expected, "{name} {given}");
                tested += 1;
            }
        }
        assert!(tested > 30, "{tested}");
    }
}
