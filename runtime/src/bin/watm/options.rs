use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use watm_runtime::{Destination, Error, Limits, Module, Reach, RoleBuilder};

use crate::failure::Failure;
use crate::loading::LoadingOptions;
use crate::logging;
use crate::watch::Mark;

/// What every command that runs a module takes.
#[derive(clap::Args)]
pub(crate) struct ModuleOptions {
    /// A .wasm file: a module of WATER v0 or v1, or a component of watm:transport.
    #[arg(value_name = "MODULE")]
    file: PathBuf,
    #[command(flatten)]
    loading: LoadingOptions,
    /// A file for the module, in its own format.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the module may go beyond the address that it is given; may be given several times.
    /// By default nowhere. A name, *.name, address, network or *, then :port or :low-high.
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// How long one connection may take until it is ready. By default 30.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// While connections are accepted: load the module again when its file is another one, for
    /// connections that come after it. One that is not to be had changes nothing.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    log: logging::Options,
}

/// A module that is ready to run, and what it is to run with.
pub(crate) struct Loaded {
    pub(crate) module: Module,
    pub(crate) file: PathBuf,
    /// Of the file that was loaded.
    pub(crate) mark: Option<Mark>,
    pub(crate) loading: LoadingOptions,
    pub(crate) watch: bool,
    config: Option<Vec<u8>>,
    reach: Reach,
    timeout: Option<Duration>,
}

impl ModuleOptions {
    /// Check everything, and compile the module. `asks`: standard input is not for data.
    pub(crate) fn load(&self, asks: bool) -> Result<Loaded, Failure> {
        logging::start(&self.log);
        let reach = self
            .allow
            .iter()
            .try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))?;
        let config = self.config.as_deref().map(read).transpose()?;
        let mark = Mark::of(&self.file);
        let module = self.loading.load(&self.file, asks)?;
        Ok(Loaded {
            module,
            file: self.file.clone(),
            mark,
            loading: self.loading.clone(),
            watch: self.watch,
            config,
            reach,
            timeout: self.timeout,
        })
    }
}

impl Loaded {
    /// A dialer, listener or relay with these options.
    pub(crate) fn apply<R>(&self, builder: RoleBuilder<R>) -> RoleBuilder<R> {
        let builder = builder.reach(self.reach.clone()).limits(self.limits());
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
