use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use watm_runtime::{Destination, Error, Keys, Limits, Module, Reach, RoleBuilder};

use crate::failure::Failure;
use crate::keys::KeyOptions;
use crate::loading::LoadingOptions;
use crate::logging;
use crate::reporting::capture::{CaptureOptions, Capturing};
use crate::watch::{Following, WatchOptions};

/// What every command that runs a module takes.
#[derive(clap::Args)]
pub(crate) struct ModuleOptions {
    /// A .wasm file: a module of WATER v0 or v1, or a component of watm:transport.
    #[arg(value_name = "MODULE")]
    pub(crate) file: PathBuf,
    /// A file for the module, in its own format.
    #[arg(long, visible_alias = "config-file", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the module may go beyond the address that it is given; may be given several times.
    /// By default nowhere. A name, *.name, address, network or *, then :port or :low-high; for TCP
    /// and UDP unless tcp:// or udp:// is in front.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) running: RunningOptions,
}

/// How a module is run, whichever it is.
#[derive(clap::Args)]
pub(crate) struct RunningOptions {
    #[command(flatten)]
    pub(crate) loading: LoadingOptions,
    #[command(flatten)]
    capture: CaptureOptions,
    /// How long one connection may take until it is ready. By default 30.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
    #[command(flatten)]
    pub(crate) log: logging::Options,
}

/// A module that is ready to run, and what it is to run with.
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
    /// Check everything, and compile the module. `asks`: standard input is not for data.
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
    /// Compile the module in `file`, to be run with this configuration and to go no further than
    /// `reach`. `asks`: standard input is not for data.
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
            capture: self.capture.capture(),
        })
    }
}

impl Loaded {
    /// A dialer, listener or relay with these options.
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
        let limits = Limits::for_connections_of(&self.module);
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

/// What these patterns of `--allow` admit.
pub(crate) fn reach_of(allowed: &[String]) -> Result<Reach, Error> {
    let mut patterns = allowed.iter();
    patterns.try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))
}

/// A file, or the fault with its name.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

/// `host:port`, not yet resolved.
pub(crate) fn destination(text: &str) -> Result<Destination, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

/// An address of this machine, to listen on. A name is resolved.
pub(crate) fn listening_address(text: &str) -> Result<SocketAddr, String> {
    destination(text)?;
    let found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    let mut found = found;
    found
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let refused = || "must be a number of seconds above 0, such as 2.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| refused())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(refused()),
    }
}
