//! The log: every line on standard error is a record of it. Used throughout the crate.
//!
//! 1. Nothing else writes to standard error. Results go to standard output, and nothing else does.
//! 2. [`PROGRAM`] is the target of records about the program itself: the addresses that it listens
//!    on, reloads, swaps, drains, and the reason why it ends. `--log` does not silence these
//!    records: scripts wait for them.
//! 3. ERROR: something stopped, or the operator's request was refused. WARN: something works less
//!    well than configured. INFO: events that the operator causes or configured, and one record for
//!    each connection. DEBUG: everything that strangers can trigger. TRACE: everything for each
//!    packet.
//! 4. A refusal by the operator's own configuration has INFO and names the option that would allow
//!    it. Clients choose how often that happens, so the host limits its rate.
//! 5. No record has payload or keys.
//! 6. With `--log-format json` each line is one JSON object, from the first line on.

mod json;
mod text;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;

use serde_derive::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use json::Json;
use text::Text;

/// The target of records about the program itself, at INFO and above.
pub(crate) const PROGRAM: &str = "watm::program";

/// The format of this process.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Options of the log.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Least level of records on standard error. Output of a WATER module has DEBUG. Records of the
    /// program itself, such as `listening on …`, are always written.
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn")]
    level: Level,
    /// Format of every line on standard error: text, or a JSON object.
    #[arg(long = "log-format", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// Options of the log that override those of a file.
#[derive(Default, clap::Args)]
pub(crate) struct Overrides {
    /// Least level of records on standard error, by default info. Output of a WATER module has
    /// DEBUG. Records of the program itself, such as `listening on …`, are always written.
    #[arg(long = "log", value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    /// Format of every line on standard error: text, which is the default, or a JSON object.
    #[arg(long = "log-format", value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

#[derive(Clone, Copy, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Text,
    Json,
}

/// The settings of the log.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// The level. `None` means INFO with a record of each connection, and WARN without.
    pub(crate) level: Option<Level>,
    /// The format. `None` means text.
    pub(crate) format: Option<Format>,
    /// True if each connection that ends has a record. It has INFO, and is written at every level
    /// but `off`.
    pub(crate) connections: bool,
}

/// Starts the log. Only the first call of a process has an effect.
pub(crate) fn start(options: &Options) {
    start_as(Settings {
        level: Some(options.level),
        format: Some(options.format),
        connections: false,
    });
}

/// Starts the log with these settings, as [`start`] does.
pub(crate) fn start_as(settings: Settings) {
    let format = settings.format.unwrap_or(Format::Text);
    if FORMAT.set(format).is_err() {
        return;
    }
    let layer = fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(io::stderr);
    let layer = match format {
        Format::Text => layer.event_format(Text::default()).boxed(),
        Format::Json => {
            panic::set_hook(Box::new(panicked));
            layer.event_format(Json).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(wanted(settings)))
        .init();
}

/// Returns the levels by target.
fn wanted(settings: Settings) -> Targets {
    let unless_said = match settings.connections {
        true => Level::Info,
        false => Level::Warn,
    };
    let level = match settings.level.unwrap_or(unless_said) {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let connections = match level {
        LevelFilter::OFF => LevelFilter::OFF,
        _ if settings.connections => LevelFilter::INFO,
        _ => LevelFilter::OFF,
    };
    Targets::new()
        // Libraries outside the project log from WARN up.
        .with_default(level.min(LevelFilter::WARN))
        .with_target("watm", level)
        .with_target(PROGRAM, LevelFilter::INFO)
        .with_target("watm::connection", connections)
}

/// Logs the reason why the program ends. If the log has not started, takes its format from the
/// arguments in `given`, which need not be valid otherwise.
pub(crate) fn fail(reason: &impl Display, given: &[OsString]) {
    start_as(Settings {
        level: None,
        format: format_in(given),
        connections: false,
    });
    tracing::error!(target: PROGRAM, "{reason}");
}

/// Logs a warning of a command that has no options for its log.
pub(crate) fn warn(reason: &impl Display) {
    start_as(Settings {
        level: None,
        format: None,
        connections: false,
    });
    tracing::warn!(target: PROGRAM, "warning: {reason}");
}

/// Returns the last `--log-format` in these arguments, if it is valid.
fn format_in(given: &[OsString]) -> Option<Format> {
    let mut values = given.iter().enumerate().filter_map(|(index, argument)| {
        match argument.to_str()?.strip_prefix("--log-format")? {
            "" => given.get(index + 1).and_then(|value| value.to_str()),
            rest => rest.strip_prefix('='),
        }
    });
    let value = values.next_back()?;
    <Format as clap::ValueEnum>::from_str(value, false).ok()
}

/// Returns true if a person reads standard error and can be asked: it is a terminal, and the format
/// is not JSON.
pub(crate) fn can_ask() -> bool {
    FORMAT.get() != Some(&Format::Json) && io::stderr().is_terminal()
}

/// Writes a question, or a part of it. It is not a record, so [`can_ask`] must hold.
pub(crate) fn ask(question: &str) -> io::Result<()> {
    let mut terminal = io::stderr().lock();
    terminal.write_all(question.as_bytes())?;
    terminal.flush()
}

/// Logs a panic, in place of the standard library's hook, which writes text.
fn panicked(panic: &PanicHookInfo<'_>) {
    tracing::error!(target: PROGRAM, "{panic}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_known_before_the_arguments_are_valid() {
        let of = |given: &[&str]| format_in(&given.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            of(&["watm", "listen", "--log-format", "json", "--bad"]),
            Some(Format::Json)
        );
        assert_eq!(
            of(&["watm", "listen", "--log-format=json"]),
            Some(Format::Json)
        );
        assert_eq!(
            of(&["watm", "--log-format=json", "--log-format", "text"]),
            Some(Format::Text)
        );
        for without in [
            &["watm", "--log-format"][..],
            &["watm", "--log-formats=json"],
            &["watm"],
        ] {
            assert_eq!(of(without), None, "{without:?}");
        }
    }
}
