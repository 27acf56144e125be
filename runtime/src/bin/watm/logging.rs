mod json;

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

#[derive(Clone, Copy, clap::ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Write records of this program and of modules to standard error, for the rest of its life.
pub(crate) fn start(options: &Options) {
    let level = match options.level {
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
    let layer = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    let layer = match options.format {
        Format::Text => layer.boxed(),
        Format::Json => layer.event_format(Json).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(wanted))
        .init();
}
