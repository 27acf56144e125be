//! Options of every command that runs a module.

use std::path::{Path, PathBuf};
use std::time::Duration;

use watm_runtime::{Error, Keys, Limits, Module, Reach, RoleBuilder};

use crate::failure::Failure;
use crate::inputs::read;
use crate::keys::KeyOptions;
use crate::loading::LoadingOptions;
use crate::logging;
use crate::reporting::capture::{CaptureOptions, Capturing};
use crate::watch::{Following, WatchOptions};

/// Options of every command that runs a module.
#[derive(clap::Args)]
pub(crate) struct ModuleOptions {
    /// A .wasm file: a module of WATER v0 or v1, or a component of watm:transport. `relay` runs
    /// programs of WASI 0.2 too.
    #[arg(value_name = "MODULE")]
    pub(crate) file: PathBuf,
    /// Configuration file for the module, in its own format.
    #[arg(long, visible_alias = "config-file", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Destination that the module may reach beyond the address that it is given; may be given
    /// several times. None by default. A name, *.name, address, network or *, then :port or
    /// :low-high; for TCP and UDP unless tcp:// or udp:// is in front.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) running: RunningOptions,
}

/// Options for running any module.
#[derive(clap::Args)]
pub(crate) struct RunningOptions {
    #[command(flatten)]
    pub(crate) loading: LoadingOptions,
    #[command(flatten)]
    capture: CaptureOptions,
    /// Time limit for a connection to become ready. By default 30.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
    #[command(flatten)]
    pub(crate) log: logging::Options,
}

/// A compiled module with the options for running it.
pub(crate) struct Loaded {
    pub(crate) module: Module,
    pub(crate) file: PathBuf,
    pub(crate) loading: LoadingOptions,
    pub(crate) following: Following,
    config: Option<Vec<u8>>,
    pub(crate) reach: Reach,
    timeout: Option<Duration>,
    keys: Keys,
    capture: Option<Capturing>,
}

impl ModuleOptions {
    /// Checks all options and compiles the module. `asks` is true if standard input carries no
    /// data.
    pub(crate) fn load(&self, asks: bool) -> Result<Loaded, Failure> {
        logging::start(&self.running.log);
        let reach = reach_of(&self.allow)?;
        let config = self.config.as_deref().map(read).transpose()?;
        let keys = self.keys.read()?;
        let loaded = self.running.load(&self.file, config, reach, asks)?;
        Ok(Loaded { keys, ..loaded })
    }
}

impl RunningOptions {
    /// Compiles the module in `file` for this configuration and reach. `asks` is true if standard
    /// input carries no data.
    pub(crate) fn load(
        &self,
        file: &Path,
        config: Option<Vec<u8>>,
        reach: Reach,
        asks: bool,
    ) -> Result<Loaded, Failure> {
        let (following, before) = self.watch.begin(file, &self.loading)?;
        let module = match before {
            Some(module) => module,
            None => self.loading.load(file, asks)?,
        };
        Ok(Loaded {
            module,
            file: file.to_owned(),
            loading: self.loading.clone(),
            following,
            config,
            reach,
            timeout: self.timeout,
            keys: Keys::new(),
            capture: self.capture.capture()?,
        })
    }
}

impl Loaded {
    /// Applies these options to a dialer, listener or relay.
    pub(crate) fn apply<R>(&self, builder: RoleBuilder<R>) -> RoleBuilder<R> {
        let builder = builder
            .reach(self.reach.clone())
            .limits(self.limits())
            .keys(self.keys.clone())
            .capture(self.capture.as_ref().map(Capturing::capture));
        match &self.config {
            Some(config) => builder.config(config.clone()),
            None => builder,
        }
    }

    fn limits(&self) -> Limits {
        let limits = Limits::for_connections_of(self.module.info().kind);
        match self.timeout {
            Some(timeout) => Limits {
                handshake_timeout: timeout,
                connect_timeout: timeout.min(limits.connect_timeout),
                ..limits
            },
            None => limits,
        }
    }
}

/// Returns the reach that these `--allow` patterns admit.
pub(crate) fn reach_of(allowed: &[String]) -> Result<Reach, Error> {
    let mut patterns = allowed.iter();
    patterns.try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let refused = || "must be a number of seconds above 0, such as 2.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| refused())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(refused()),
    }
}
