mod json;

use serde_derive::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use json::Json;

/// What is logged, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The least level of records on standard error. What a WATER module prints has DEBUG.
    #[arg(long = "log", value_name = "LEVEL", default_value = "warn")]
    level: Level,
    /// Records as lines of text, or each as an object of JSON.
    #[arg(long = "log-format", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// The same where a file says it too.
#[derive(Default, clap::Args)]
pub(crate) struct Overrides {
    /// The least level of records on standard error, by default info. What a WATER module prints
    /// has DEBUG.
    #[arg(long = "log", value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    /// Records as lines of text, which is the default, or each as an object of JSON.
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

#[derive(Clone, Copy, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Text,
    Json,
}

/// All that there is to say about it.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// If nothing is said, INFO with a record of each connection, and WARN without.
    pub(crate) level: Option<Level>,
    /// Text if nothing is said.
    pub(crate) format: Option<Format>,
    /// A record of each connection that ends, which has INFO, at every level but `off`.
    pub(crate) connections: bool,
}

/// Write records of this program and of modules to standard error, for the rest of its life.
pub(crate) fn start(options: &Options) {
    start_as(Settings {
        level: Some(options.level),
        format: Some(options.format),
        connections: false,
    });
}

/// As [`start`].
pub(crate) fn start_as(settings: Settings) {
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
    // Libraries below ours are heard from WARN up.
    let wanted = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("watm", level);
    let wanted = match level {
        LevelFilter::OFF => wanted,
        _ if settings.connections => wanted.with_target("watm::connection", LevelFilter::INFO),
        _ => wanted.with_target("watm::connection", LevelFilter::OFF),
    };
    let layer = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    let layer = match settings.format.unwrap_or(Format::Text) {
        Format::Text => layer.boxed(),
        Format::Json => layer.event_format(Json).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(wanted))
        .init();
}
