//! The configuration file of `watm serve`, as it is written. `settings` checks and completes it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_derive::Deserialize;
use watm_runtime::printable;

use super::values::{Count, Place, ProxyHeader, Time, Upstream, Workers};
use crate::durations::Seconds;
use crate::failure::Failure;
use crate::logging;
use crate::reporting::web::Host;

/// The largest configuration, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The longest reason in an error, in bytes: the names of all keys of a table, and a value.
const LONGEST_REASON: usize = 700;

/// The content of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) logs: Logs,
    pub(super) metrics: Option<toml::Spanned<Metrics>>,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) drain: Drain,
    #[serde(rename = "listener", default)]
    pub(super) listeners: Vec<toml::Spanned<Listener>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Logs {
    pub(super) level: Option<logging::Level>,
    pub(super) format: Option<logging::Format>,
    pub(super) connections: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub(super) listen: std::net::SocketAddr,
    #[serde(default)]
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    pub(super) timeout: Option<Seconds>,
}

/// Limits of all listeners, or of one of them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) connections: Option<Count>,
    pub(super) connections_per_client: Option<Count>,
    pub(super) connect_timeout: Option<Time>,
    pub(super) idle_timeout: Option<Seconds>,
    pub(super) datagram_idle_timeout: Option<Time>,
    pub(super) lifetime: Option<Seconds>,
    pub(super) memory_mib: Option<Count>,
    pub(super) descriptors: Option<Count>,
    pub(super) log_records: Option<Count>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Listener {
    pub(super) name: Option<String>,
    pub(super) module: PathBuf,
    pub(super) config: Option<String>,
    pub(super) config_file: Option<PathBuf>,
    /// Files of private keys, by name.
    #[serde(default)]
    pub(super) keys: BTreeMap<String, PathBuf>,
    pub(super) addresses: Vec<Place>,
    #[serde(default)]
    pub(super) ipv6_only: bool,
    pub(super) upstream: Upstream,
    pub(super) decoy: Option<Upstream>,
    #[serde(default)]
    pub(super) allow: Vec<String>,
    #[serde(default)]
    pub(super) reach: Vec<String>,
    pub(super) proxy_header: Option<ProxyHeader>,
    pub(super) transparent: Option<Transparent>,
    #[serde(default)]
    pub(super) workers: Workers,
    pub(super) backlog: Option<Count>,
    #[serde(default)]
    pub(super) limits: Limits,
}

/// Options for connecting from clients' addresses.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Transparent {
    pub(super) mark: Option<u32>,
    #[serde(default)]
    pub(super) client_port: bool,
}

impl Limits {
    /// Returns these limits, with missing ones from `general`.
    pub(super) fn or(self, general: Limits) -> Limits {
        Limits {
            connections: self.connections.or(general.connections),
            connections_per_client: self
                .connections_per_client
                .or(general.connections_per_client),
            connect_timeout: self.connect_timeout.or(general.connect_timeout),
            idle_timeout: self.idle_timeout.or(general.idle_timeout),
            datagram_idle_timeout: self.datagram_idle_timeout.or(general.datagram_idle_timeout),
            lifetime: self.lifetime.or(general.lifetime),
            memory_mib: self.memory_mib.or(general.memory_mib),
            descriptors: self.descriptors.or(general.descriptors),
            log_records: self.log_records.or(general.log_records),
        }
    }
}

impl File {
    /// Reads a file. Errors name the file, the line and the key.
    pub(super) fn read(path: &Path) -> Result<(File, String), Failure> {
        parse(path)
    }
}

/// Parses a configuration. Returns it with its text.
fn parse<T: DeserializeOwned>(path: &Path) -> Result<(T, String), Failure> {
    let unusable = |reason: &str| Failure::unusable(format!("{}: {reason}", path.display()));
    let len = std::fs::metadata(path)
        .map_err(|error| unusable(&error.to_string()))?
        .len();
    if len > MAX_BYTES {
        return Err(unusable(&format!(
            "is larger than {MAX_BYTES} bytes; must be TOML"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error.to_string()))?;
    let file = toml::from_str(&text)
        .map_err(|error| unusable(&located(&text, error.span(), error.message())))?;
    Ok((file, text))
}

/// Returns the format of logs in the configuration at `path`, whose other parts may be invalid.
pub(super) fn log_format(path: &Path) -> Option<logging::Format> {
    #[derive(Deserialize)]
    struct Partial {
        logs: PartialLogs,
    }
    #[derive(Deserialize)]
    struct PartialLogs {
        format: logging::Format,
    }
    let (partial, _) = parse::<Partial>(path).ok()?;
    Some(partial.logs.format)
}

/// Prefixes a reason with the line of its span, and the key in that line. The result is one line of
/// at most [`LONGEST_REASON`] bytes, whatever the file has.
pub(super) fn located(text: &str, span: Option<Range<usize>>, reason: &str) -> String {
    printable(&with_line(text, span, reason), LONGEST_REASON).into_owned()
}

fn with_line(text: &str, span: Option<Range<usize>>, reason: &str) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return reason.to_owned();
    };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split_once('=').map(|(key, _)| key.trim());
    match key {
        Some(key)
            if !reason.contains(&format!("`{key}`"))
                && !reason.starts_with(&format!("{key}: ")) =>
        {
            format!("line {number}: {key}: {reason}")
        }
        _ => format!("line {number}: {reason}"),
    }
}

/// Returns the span of the key that a reason begins with, among the lines of this table, or the
/// table's span if the key is missing.
pub(super) fn key_in(text: &str, table: Range<usize>, reason: &str) -> Range<usize> {
    let key = reason.split_once(':').map_or(reason, |(key, _)| key);
    let mut at = table.start;
    let lines = text.get(at..).unwrap_or_default().split_inclusive('\n');
    for (number, line) in lines.enumerate() {
        if number > 0 && line.starts_with('[') {
            break;
        }
        let found = line.split_once('=').map(|(key, _)| key.trim());
        if found == Some(key) {
            return at..at + line.len();
        }
        at += line.len();
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: &str =
        "[[listener]]\nmodule = \"m.wasm\"\naddresses = [\"[::]:1\"]\nupstream = \"a:1\"\n";

    fn parsed(text: &str) -> Result<File, String> {
        toml::from_str(text).map_err(|error| located(text, error.span(), error.message()))
    }

    #[test]
    fn numbers_may_stand_in_quotes() {
        let limits = |quote: &str| {
            let text = format!(
                "[limits]\nconnections = {quote}5{quote}\nidle-timeout = {quote}2.5{quote}\n\
                 [drain]\ntimeout = {quote}7{quote}\n{LISTENER}workers = {quote}2{quote}\n"
            );
            let file = parsed(&text).expect("a configuration");
            let workers = file.listeners[0].get_ref().workers;
            let limits = (file.limits.connections, file.limits.idle_timeout);
            (limits, file.drain.timeout, workers)
        };
        assert_eq!(limits("\""), limits(""));
    }

    #[test]
    fn every_key_is_read() {
        let text = "[logs]\nlevel = \"info\"\nformat = \"json\"\nconnections = false\n\
            [metrics]\nlisten = \"127.0.0.1:1\"\nhosts = [\"a\"]\nclients = 3\n\
            [limits]\nconnections = 5\nidle-timeout = 2.5\n[drain]\ntimeout = 7\n\
            [[listener]]\nname = \"a\"\nmodule = \"m.wasm\"\nconfig-file = \"c\"\n\
            addresses = [\"127.0.0.1:1\", \"udp://[::1]:2\"]\nipv6-only = true\n\
            upstream = { ipv4 = \"a:1\", ipv6 = \"unix:/b\" }\nallow = [\"*:1\"]\nreach = [\"*\"]\n\
            proxy-header = \"v2\"\nworkers = 3\nbacklog = 9\n\
            transparent = { mark = 7, client-port = true }\n\
            keys = { web = \"k.pem\" }\n\
            [listener.limits]\nconnections = 6\n";
        let file = parsed(text).expect("a configuration");
        let listener = file.listeners[0].get_ref();
        assert_eq!(listener.workers, Workers::Exactly(3));
        assert_eq!(listener.keys["web"], Path::new("k.pem"));
        let transparent = listener.transparent.expect("set");
        assert_eq!((transparent.mark, transparent.client_port), (Some(7), true));
        assert_eq!(listener.upstream.to_string(), "a:1 or unix:/b");
        let limits = listener.limits.or(file.limits);
        assert_eq!(limits.connections, Some(Count(6)));
        assert_eq!(limits.idle_timeout.expect("set").time().as_millis(), 2500);
        assert!(listener.addresses[1].protocol.is_some());
    }

    #[test]
    fn an_error_is_one_line_whatever_it_repeats() {
        let long = "a".repeat(100_000);
        for text in [
            format!("{LISTENER}\"back\\u001b[31mlog\" = 1\n"),
            format!("{LISTENER}\"back\\nlog\" = 1\n"),
            LISTENER.replace("a:1", "a\\r\\nforged"),
            LISTENER.replace("[::]:1", "\\u0007"),
            LISTENER.replace("[::]:1", &long),
            format!("{LISTENER}{long} = 1\n"),
            format!("{LISTENER}backlog\u{7f} = 1\n"),
        ] {
            let error = parsed(&text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(!error.contains(char::is_control), "{text:?}: {error:?}");
            assert!(error.len() <= LONGEST_REASON, "{} bytes", error.len());
            assert!(error.starts_with("line "), "{error}");
        }
    }

    #[test]
    fn errors_name_the_line_and_the_key_and_what_would_be_right() {
        for (change, expected) in [
            (
                "backlock = 1",
                "line 5: unknown field `backlock`, expected one of `name`",
            ),
            (
                "backlog = \"x\"",
                "line 5: backlog: must be a number from 1",
            ),
            (
                "workers = 0",
                "line 5: workers: must be \"auto\", or a number from 1 to 256",
            ),
            ("workers = \"many\"", "line 5: workers: must be \"auto\""),
            (
                "proxy-header = \"v3\"",
                "line 5: proxy-header: unknown variant `v3`",
            ),
            (
                "[listener.limits]\nlifetime = -1",
                "line 6: lifetime: must be a number of seconds",
            ),
            (
                "[listener.limits]\nidle = 1",
                "line 6: unknown field `idle`",
            ),
            ("[log]", "line 5: unknown field `log`"),
            ("x", "line 5: "),
        ] {
            let text = format!("{LISTENER}{change}\n");
            let error = parsed(&text).err().unwrap_or_else(|| panic!("{change}"));
            assert!(error.starts_with(expected), "{change:?}: {error}");
        }
        for (from, to, expected) in [
            ("a:1", "a", "line 4: upstream: address \"a\": has no port"),
            ("a:1", "unix:", "line 4: upstream: unix: has no path"),
            (
                "[::]:1",
                "::1",
                "line 3: addresses: \"::1\" must be an address of this machine",
            ),
            (
                "[::]:1",
                "sctp://a",
                "line 3: addresses: \"sctp\" must be tcp or udp",
            ),
            (
                "\"a:1\"",
                "{ ipv4 = \"a:1\" }",
                "line 4: upstream: must be two upstreams",
            ),
            (
                "\"a:1\"",
                "{ ipv4 = \"a:1\", ipv6 = \"a:1\", b = 1 }",
                "line 4: upstream: unknown field `b`",
            ),
            ("\"a:1\"", "7", "line 4: upstream: must be \"host:port\""),
        ] {
            let text = LISTENER.replace(from, to);
            let error = parsed(&text).err().unwrap_or_else(|| panic!("{to}"));
            assert!(error.starts_with(expected), "{to:?}: {error}");
        }
    }
}
