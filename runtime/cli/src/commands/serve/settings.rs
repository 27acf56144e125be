//! The settings of `watm serve`: the configuration file and the command line, checked and complete.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use watm_runtime::{Reach, TransparentOptions};
use watm_schema::Field;

use super::extended_or_port::ExtendedOrPort;
use super::fields;
use super::file::{self, File, key_in, located};
use super::values::{Place, ProxyHeader, Upstream, Workers};
use crate::durations::Seconds;
use crate::failure::Failure;
use crate::inputs::read;
use crate::keys::NamedKey;
use crate::logging;
use crate::reporting::web::Host;

/// The default backlog: connections that the kernel completes before they are accepted.
const BACKLOG: u32 = fields::default_of(&fields::LISTENER, "backlog") as u32;

/// The default limit on connections of one listener: as many as a process's descriptors allow on
/// most systems, with two for each.
const CONNECTIONS: usize = fields::default_of(&fields::LIMITS, "connections") as usize;

/// The default time limit for an upstream to accept.
const CONNECT_TIMEOUT: Duration =
    Duration::from_secs(fields::default_of(&fields::LIMITS, "connect-timeout"));

/// The default time after which a silent connection ends. Most firewalls on the way forget it
/// earlier.
const IDLE_TIMEOUT: Duration =
    Duration::from_secs(fields::default_of(&fields::LIMITS, "idle-timeout"));

/// The default time after which a silent datagram flow ends. RFC 4787 requires at least two
/// minutes, and most systems use less.
const DATAGRAM_IDLE_TIMEOUT: Duration =
    Duration::from_secs(fields::default_of(&fields::LIMITS, "datagram-idle-timeout"));

/// The default number of log records a second. A listener at this rate writes a gigabyte in about an
/// hour.
const LOG_RECORDS: usize = fields::default_of(&fields::LIMITS, "log-records") as usize;

/// The default time for connections to end when the program ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(fields::default_of(&fields::DRAIN, "timeout"));

/// The default number of clients with byte counters of their own.
const CLIENTS: usize = fields::default_of(&fields::METRICS, "clients") as usize;

/// The field for that number.
const CLIENTS_FIELD: Field = watm_schema::field(&watm_schema::fields(&fields::METRICS), "clients");

/// The settings of the program.
pub(super) struct Settings {
    pub(super) log: logging::Settings,
    pub(super) metrics: Option<SocketAddr>,
    /// Further names that requests for metrics may use.
    pub(super) metrics_hosts: Vec<Host>,
    pub(super) clients: usize,
    pub(super) drain: Duration,
    pub(super) listeners: Vec<Listener>,
}

/// A module in front of an upstream.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) module: PathBuf,
    pub(super) config: Config,
    /// The keys that the module may sign with.
    pub(super) keys: Vec<NamedKey>,
    pub(super) addresses: Vec<Place>,
    pub(super) ipv6_only: bool,
    pub(super) workers: Workers,
    pub(super) backlog: u32,
    pub(super) reach: Reach,
    pub(super) memory: Option<usize>,
    pub(super) descriptors: Option<usize>,
    /// Set if it connects from its clients' addresses.
    pub(super) transparent: Option<TransparentOptions>,
    pub(super) terms: Terms,
}

/// The configuration of a module.
#[derive(Clone)]
pub(super) enum Config {
    None,
    Inline(Vec<u8>),
    File(PathBuf),
}

impl Config {
    /// Returns its current bytes.
    pub(super) fn read(&self) -> Result<Vec<u8>, Failure> {
        Ok(match self {
            Config::None => Vec::new(),
            Config::Inline(bytes) => bytes.clone(),
            Config::File(path) => read(path)?,
        })
    }
}

/// The terms on which connections are carried. They can change while connections are open.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) upstream: Upstream,
    /// The upstream of clients that the module does not admit. Without one they are refused.
    pub(super) decoy: Option<Upstream>,
    /// Destinations that a dynamic upstream may have.
    pub(super) allow: Reach,
    pub(super) introduction: Introduction,
    pub(super) connections: usize,
    pub(super) per_client: Option<usize>,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) datagram_idle_timeout: Duration,
    pub(super) lifetime: Option<Duration>,
    /// Log records a second of connections that end.
    pub(super) log_records: usize,
}

/// The announcement of a client, which an upstream gets first.
#[derive(Clone)]
pub(super) enum Introduction {
    None,
    Proxy(ProxyHeader),
    Tor(ExtendedOrPort),
}

/// Values on the command line that replace those of the file.
#[derive(Default)]
pub(super) struct Overrides {
    pub(super) log: logging::Overrides,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) metrics_hosts: Vec<Host>,
    pub(super) drain: Option<Seconds>,
    pub(super) listen: Vec<Place>,
    pub(super) upstream: Option<Upstream>,
    pub(super) workers: Option<Workers>,
    pub(super) config: Option<PathBuf>,
    pub(super) keys: Vec<NamedKey>,
    pub(super) proxy_header: Option<ProxyHeader>,
    pub(super) allow: Vec<String>,
    pub(super) reach: Vec<String>,
}

impl Overrides {
    /// Returns true if any value belongs to a listener.
    fn of_listener(&self) -> bool {
        !self.listen.is_empty()
            || self.upstream.is_some()
            || self.workers.is_some()
            || self.config.is_some()
            || !self.keys.is_empty()
            || self.proxy_header.is_some()
            || !self.allow.is_empty()
            || !self.reach.is_empty()
    }
}

/// Reads the settings in a file. Relative paths in it start from its folder.
pub(super) fn from_file(path: &Path, overrides: Overrides) -> Result<Settings, Failure> {
    let (mut file, text) = File::read(path)?;
    let unusable = |reason: String| Failure::unusable(format!("{}: {reason}", path.display()));
    if file.listeners.is_empty() {
        return Err(unusable(
            "listener: missing; add at least one [[listener]]".to_owned(),
        ));
    }
    if overrides.of_listener() {
        let [only] = &mut file.listeners[..] else {
            return Err(Failure::unusable(
                "listener options on the command line need a file with one listener; this one has \
                 more",
            ));
        };
        let base = std::env::current_dir().map_err(Failure::failed)?;
        override_listener(only.get_mut(), &overrides, &base);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    complete(file, &overrides, folder, |span, reason| {
        let span = span.map(|span| key_in(&text, span, &reason));
        unusable(located(&text, span, &reason))
    })
}

/// Makes settings from the command line alone.
pub(super) fn from_arguments(module: &Path, overrides: Overrides) -> Result<Settings, Failure> {
    let Some(upstream) = overrides.upstream.clone() else {
        return Err(Failure::unusable(
            "--upstream: must be given for a module, as HOST:PORT, unix:PATH or dynamic",
        ));
    };
    let mut listener = file::Listener {
        name: None,
        module: module.to_owned(),
        config: None,
        config_file: None,
        keys: BTreeMap::new(),
        addresses: Vec::new(),
        ipv6_only: false,
        upstream,
        decoy: None,
        allow: Vec::new(),
        reach: Vec::new(),
        proxy_header: None,
        transparent: None,
        workers: Workers::Auto,
        backlog: None,
        limits: file::Limits::default(),
    };
    override_listener(&mut listener, &overrides, Path::new(""));
    if listener.addresses.is_empty() {
        return Err(Failure::unusable(
            "--listen: must be given for a module, as ADDRESS:PORT",
        ));
    }
    let file = File {
        logs: file::Logs::default(),
        metrics: None,
        limits: file::Limits::default(),
        drain: file::Drain::default(),
        listeners: vec![toml::Spanned::new(0..0, listener)],
    };
    complete(file, &overrides, Path::new(""), |_, reason| {
        Failure::unusable(reason)
    })
}

/// Applies overrides to a listener. Paths on the command line start from `base`.
fn override_listener(listener: &mut file::Listener, overrides: &Overrides, base: &Path) {
    if !overrides.listen.is_empty() {
        listener.addresses.clone_from(&overrides.listen);
    }
    if let Some(upstream) = &overrides.upstream {
        listener.upstream = upstream.clone();
    }
    if let Some(workers) = overrides.workers {
        listener.workers = workers;
    }
    if let Some(path) = &overrides.config {
        listener.config = None;
        listener.config_file = Some(base.join(path));
    }
    for NamedKey { name, file } in &overrides.keys {
        listener.keys.insert(name.clone(), base.join(file));
    }
    listener.proxy_header = overrides.proxy_header.or(listener.proxy_header);
    listener.allow.extend(overrides.allow.iter().cloned());
    listener.reach.extend(overrides.reach.iter().cloned());
}

type Span = Option<std::ops::Range<usize>>;

fn complete(
    file: File,
    overrides: &Overrides,
    folder: &Path,
    refuse: impl Fn(Span, String) -> Failure,
) -> Result<Settings, Failure> {
    let mut listeners = Vec::new();
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, spanned) in file.listeners.into_iter().enumerate() {
        let span = Some(spanned.span());
        let listener = listener(spanned.into_inner(), index, file.limits, folder)
            .map_err(|reason| refuse(span.clone(), reason))?;
        if !names.insert(listener.name.clone()) {
            let reason = format!("name: duplicate listener \"{}\"", listener.name);
            return Err(refuse(span, reason));
        }
        for place in &listener.addresses {
            if place.address.port() != 0 && !places.insert(*place) {
                let reason = format!("addresses: {} is listed twice", place.address);
                return Err(refuse(span, reason));
            }
        }
        listeners.push(listener);
    }
    let span = file.metrics.as_ref().map(toml::Spanned::span);
    let metrics = file.metrics.as_ref().map(toml::Spanned::get_ref);
    let clients = metrics
        .and_then(|metrics| metrics.clients)
        .unwrap_or(CLIENTS);
    if CLIENTS_FIELD.admit(clients.try_into().ok()).is_err() {
        return Err(refuse(
            span,
            format!("clients: must be {}", CLIENTS_FIELD.kind),
        ));
    }
    let logs = file.logs;
    let drain = overrides.drain.or(file.drain.timeout);
    Ok(Settings {
        log: logging::Settings {
            level: overrides.log.level.or(logs.level),
            format: overrides.log.format.or(logs.format),
            connections: logs.connections.unwrap_or(true),
        },
        metrics: overrides.metrics.or(metrics.map(|metrics| metrics.listen)),
        metrics_hosts: match (&*overrides.metrics_hosts, metrics) {
            ([], Some(metrics)) => metrics.hosts.clone(),
            (hosts, _) => hosts.to_vec(),
        },
        clients,
        drain: drain.map_or(DRAIN_TIMEOUT, Seconds::time),
        listeners,
    })
}

fn listener(
    listener: file::Listener,
    index: usize,
    general: file::Limits,
    folder: &Path,
) -> Result<Listener, String> {
    let config = match (listener.config, listener.config_file) {
        (None, None) => Config::None,
        // The command's own --config is a file, so this is easily mistaken for one.
        (Some(text), None) if !text.is_empty() && folder.join(&text).is_file() => {
            return Err(format!(
                "config: \"{text}\" is a file, but config is the configuration itself; use \
                 config-file"
            ));
        }
        (Some(text), None) => Config::Inline(text.into_bytes()),
        (None, Some(path)) => Config::File(folder.join(path)),
        (Some(_), Some(_)) => {
            return Err("config and config-file are both given; must be one of them".to_owned());
        }
    };
    if listener.addresses.is_empty() {
        return Err("addresses: empty; must have at least one".to_owned());
    }
    let dynamic = listener
        .upstream
        .all()
        .iter()
        .any(|upstream| **upstream == Upstream::Dynamic);
    match (dynamic, listener.allow.is_empty()) {
        (true, true) => {
            return Err(
                "allow: required for a dynamic upstream, with its destinations, such as \
                 [\"10.0.0.0/8:443\"]"
                    .to_owned(),
            );
        }
        (false, false) => {
            return Err("allow: supported for upstream = \"dynamic\" only; remove it".to_owned());
        }
        _ => {}
    }
    if let Some(Upstream::Dynamic | Upstream::ByFamily { .. }) = listener.decoy {
        return Err("decoy: must be \"host:port\" or \"unix:PATH\"".to_owned());
    }
    let limits = listener.limits.or(general);
    let terms = Terms {
        upstream: listener.upstream,
        decoy: listener.decoy,
        allow: patterns("allow", &listener.allow)?,
        introduction: listener
            .proxy_header
            .map_or(Introduction::None, Introduction::Proxy),
        connections: limits.connections.map_or(CONNECTIONS, |most| most.0),
        per_client: limits.connections_per_client.map(|most| most.0),
        connect_timeout: limits
            .connect_timeout
            .map_or(CONNECT_TIMEOUT, |time| time.0),
        idle_timeout: limits
            .idle_timeout
            .map_or(Some(IDLE_TIMEOUT), Seconds::or_never),
        datagram_idle_timeout: limits
            .datagram_idle_timeout
            .map_or(DATAGRAM_IDLE_TIMEOUT, |time| time.0),
        lifetime: limits.lifetime.and_then(Seconds::or_never),
        log_records: limits.log_records.map_or(LOG_RECORDS, |most| most.0),
    };
    let keys = listener.keys.into_iter().map(|(name, file)| NamedKey {
        name,
        file: folder.join(file),
    });
    Ok(Listener {
        name: listener.name.unwrap_or_else(|| format!("{}", index + 1)),
        module: folder.join(listener.module),
        config,
        keys: keys.collect(),
        addresses: listener.addresses,
        ipv6_only: listener.ipv6_only,
        workers: listener.workers,
        backlog: listener.backlog.map_or(BACKLOG, |backlog| {
            // The kernel lowers larger values to its limit.
            backlog.0.try_into().unwrap_or(u32::MAX)
        }),
        reach: patterns("reach", &listener.reach)?,
        memory: limits.memory_mib.map(|mib| mib.0.saturating_mul(1 << 20)),
        descriptors: limits.descriptors.map(|count| count.0),
        transparent: listener.transparent.map(|how| TransparentOptions {
            mark: how.mark,
            client_port: how.client_port,
        }),
        terms,
    })
}

fn patterns(key: &str, patterns: &[String]) -> Result<Reach, String> {
    patterns.iter().try_fold(Reach::none(), |reach, pattern| {
        reach
            .allow(pattern)
            .map_err(|error| format!("{key}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The keys of a kind of table: each with an invalid value and the error for it.
    type Keys = &'static [(&'static str, &'static str, &'static str)];

    const LISTENER: &str =
        "[[listener]]\nmodule = \"m\"\naddresses = [\"[::]:1\"]\nupstream = \"a:1\"\n";

    const LIMITS: Keys = &[
        ("connections", "0", "must be a number from 1"),
        ("connections-per-client", "-1", "must be a number from 1"),
        ("connect-timeout", "0", "must be above 0"),
        ("idle-timeout", "\"x\"", "must be a number of seconds"),
        ("datagram-idle-timeout", "0.0", "must be above 0"),
        ("lifetime", "1e99", "must be a number of seconds"),
        ("memory-mib", "1.5", "must be a number from 1"),
        ("descriptors", "0", "must be a number from 1"),
        ("log-records", "0", "must be a number from 1"),
    ];

    const LOGS: Keys = &[
        (
            "level",
            "\"loud\"",
            "unknown variant `loud`, expected one of",
        ),
        (
            "format",
            "\"xml\"",
            "unknown variant `xml`, expected `text`",
        ),
        ("connections", "3", "expected a boolean"),
    ];

    const METRICS: Keys = &[
        ("listen", "\"here\"", "invalid socket address"),
        ("hosts", "[\"a:1\"]", "must be a host's name without a port"),
        ("clients", "0", "must be a number from 1 to 10000"),
    ];

    const TRANSPARENT: Keys = &[
        ("mark", "-1", "invalid value"),
        ("client-port", "1", "expected a boolean"),
    ];

    const OF_LISTENER: Keys = &[
        ("name", "7", "expected a string"),
        ("module", "7", "expected path string"),
        ("config", "7", "expected a string"),
        ("config-file", "7", "expected path string"),
        ("keys", "7", "expected a map"),
        ("addresses", "[]", "empty"),
        ("ipv6-only", "\"no\"", "expected a boolean"),
        ("upstream", "\"a\"", "has no port"),
        ("decoy", "\"dynamic\"", "must be \"host:port\" or"),
        (
            "allow",
            "[\"*:1\"]",
            "supported for upstream = \"dynamic\" only",
        ),
        ("reach", "[\"a b\"]", "reach \"a b\""),
        (
            "proxy-header",
            "\"v3\"",
            "unknown variant `v3`, expected `v1`",
        ),
        ("transparent", "true", "expected struct Transparent"),
        (
            "workers",
            "257",
            "must be \"auto\", or a number from 1 to 256",
        ),
        ("backlog", "0", "must be a number from 1"),
        ("limits", "3", "expected struct Limits"),
    ];

    fn error_of(text: &str) -> String {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("watm-settings-{}-{file}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("written");
        let settings = from_file(&path, Overrides::default());
        std::fs::remove_file(&path).expect("removed");
        let error = settings.err().unwrap_or_else(|| panic!("taken: {text}"));
        let error = error.to_string();
        let begin = format!("{}: ", path.display());
        error
            .strip_prefix(&begin)
            .expect("names the file")
            .to_owned()
    }

    /// Returns the keys that a table with `odd` in it may have instead.
    fn expected(text: &str) -> BTreeSet<String> {
        let error = error_of(text);
        let (_, list) = error
            .split_once("unknown field `odd`, expected ")
            .unwrap_or_else(|| panic!("{error}"));
        list.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn each_key_that_is_wrong_is_named_with_its_line() {
        for (before, keys, after) in [
            ("[logs]\n".to_owned(), LOGS, LISTENER),
            ("[metrics]\n".to_owned(), METRICS, LISTENER),
            ("[limits]\n".to_owned(), LIMITS, LISTENER),
            (
                "[drain]\n".to_owned(),
                &[("timeout", "-1", "must be a number of seconds")],
                LISTENER,
            ),
            (LISTENER.to_owned(), OF_LISTENER, ""),
            (format!("{LISTENER}[listener.limits]\n"), LIMITS, ""),
            (
                format!("{LISTENER}[listener.transparent]\n"),
                TRANSPARENT,
                "",
            ),
        ] {
            let listed = expected(&format!("{before}odd = 1\n{after}"));
            let tested: BTreeSet<_> = keys.iter().map(|(key, ..)| (*key).to_owned()).collect();
            assert_eq!(listed, tested, "{before}");
            for (key, wrong, reason) in keys {
                // A key stands once in a table, and some tables want one.
                let own = format!("{key} = ");
                let mut lines: Vec<&str> = before.lines().collect();
                lines.retain(|line| !line.starts_with(&own));
                let wrong = format!("{own}{wrong}");
                lines.push(&wrong);
                let at = lines.len();
                if *key == "clients" {
                    lines.push("listen = \"127.0.0.1:1\"");
                }
                let error = error_of(&format!("{}\n{after}", lines.join("\n")));
                assert!(error.starts_with(&format!("line {at}: {key}: ")), "{error}");
                assert!(error.contains(reason), "{key}: {error}");
            }
        }
        let tables = expected(&format!("odd = 1\n{LISTENER}"));
        let tables: Vec<_> = tables.iter().map(String::as_str).collect();
        assert_eq!(tables, ["drain", "limits", "listener", "logs", "metrics"]);
    }

    #[test]
    fn what_cannot_be_together_is_named_with_its_line() {
        for (more, reason) in [
            (
                "config = \"a\"\nconfig-file = \"b\"\n",
                "line 1: config and config-file are both",
            ),
            (LISTENER, "line 7: addresses: [::]:1 is listed twice"),
            (
                "name = \"2\"\n[[listener]]\nmodule = \"m\"\naddresses = [\"[::]:2\"]\nupstream = \"a:1\"\n",
                "line 6: name: duplicate listener \"2\"",
            ),
        ] {
            let error = error_of(&format!("{LISTENER}{more}"));
            assert!(error.starts_with(reason), "{error}");
        }
        assert!(error_of("[logs]\n").starts_with("listener: missing"));
    }
}
