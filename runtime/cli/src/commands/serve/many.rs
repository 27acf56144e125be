//! Listeners without a configuration file, for `watm listen`, `watm plugin` and `watm pt`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use watm_runtime::TransparentOptions;

use super::clients::Clients;
use super::extended_or_port::ExtendedOrPort;
use super::frontend::Serving;
use super::service::Service;
use super::settings::{self, Config, Introduction, Listener, Overrides};
use super::threads;
use super::values::{Place, Upstream};
use super::watching::Watching;
use crate::failure::{Failure, Outcome};
use crate::loading::LoadingOptions;
use crate::logging;
use crate::options::ModuleOptions;
use crate::system::{Signal, Signals, raise_descriptors};

/// The time limit for connections to end. The parent process ends too.
const ENDING: Duration = Duration::from_secs(1);

/// A set of listeners, each started by itself.
pub(crate) struct Many {
    runtime: Runtime,
    /// Signals, caught from the start, since a program that reads the addresses may answer with
    /// one.
    signals: Signals,
    service: Arc<Service>,
    loading: LoadingOptions,
    /// True if modules follow their files.
    watch: bool,
}

impl Many {
    pub(crate) fn new(loading: &LoadingOptions) -> Result<Many, Failure> {
        raise_descriptors();
        let runtime = threads()?;
        let signals = {
            let _inside = runtime.enter();
            Signals::new()
        };
        Ok(Many {
            runtime,
            signals: signals?,
            service: Arc::new(Service::new(Clients::new(1), loading)),
            loading: loading.clone(),
            watch: false,
        })
    }

    /// Puts a module in front of an upstream. Returns the address that it listens on.
    pub(crate) fn start(
        &mut self,
        name: &str,
        (module, config): (&Path, Vec<u8>),
        place: Place,
        upstream: Upstream,
        introduction: Option<ExtendedOrPort>,
    ) -> Result<SocketAddr, Failure> {
        let overrides = Overrides {
            listen: vec![place],
            upstream: Some(upstream),
            ..Overrides::default()
        };
        let mut settings = settings::from_arguments(module, overrides)?;
        for listener in &mut settings.listeners {
            name.clone_into(&mut listener.name);
            listener.config = Config::Inline(config.clone());
            if let Some(port) = &introduction {
                listener.terms.introduction = Introduction::Tor(port.clone());
            }
            self.add(listener)?;
        }
        let started = self.service.frontends();
        let addresses = started
            .last()
            .and_then(|last| last.addresses.first().copied());
        addresses
            .map(|(_, address)| address)
            .ok_or_else(|| Failure::failed("the listener has no address"))
    }

    fn add(&self, listener: &Listener) -> Result<(), Failure> {
        let serving = Serving::load(listener, &self.loading, false)?;
        self.runtime
            .block_on(async { self.service.add(listener, serving) })
    }

    /// Serves until a signal arrives or `end` is ready.
    pub(crate) fn serve(self, end: impl Future<Output = ()>) -> Result<Outcome, Failure> {
        self.serve_draining(ENDING, end)
    }

    /// Serves as [`serve`](Many::serve) does, with this time for connections to end.
    fn serve_draining(
        mut self,
        drain: Duration,
        end: impl Future<Output = ()>,
    ) -> Result<Outcome, Failure> {
        let serving = async {
            if self.watch {
                let watching = Watching::new(&self.service);
                tokio::spawn(watching.follow(self.service.clone()));
            }
            let asked = async { while self.signals.next().await != Signal::End {} };
            tokio::select! {
                () = asked => {}
                () = end => {}
            }
            let hurry = async { while self.signals.next().await != Signal::End {} };
            self.service.drain(drain, hurry).await;
        };
        self.runtime.block_on(serving);
        // A thread may wait for standard input.
        self.runtime.shutdown_background();
        Ok(Outcome::Well)
    }
}

/// The addresses and upstreams of one module.
pub(crate) struct Front {
    pub(crate) listen: Vec<Place>,
    pub(crate) upstream: Upstream,
    pub(crate) decoy: Option<Upstream>,
    /// Set if connections continue from their clients' addresses.
    pub(crate) transparent: Option<TransparentOptions>,
    /// The time limit for connections to end.
    pub(crate) drain: Duration,
}

/// Serves one module in front of an upstream, streams and datagrams, until a signal arrives.
pub(crate) fn in_front(module: &ModuleOptions, front: Front) -> Result<Outcome, Failure> {
    logging::start(&module.running.log);
    let overrides = Overrides {
        listen: front.listen,
        upstream: Some(front.upstream),
        config: module.config.clone(),
        keys: module.keys.key.clone(),
        reach: module.allow.clone(),
        ..Overrides::default()
    };
    let mut settings = settings::from_arguments(&module.file, overrides)?;
    let mut many = Many::new(&module.running.loading)?;
    many.watch = module.running.watch.follows_file()?;
    for listener in &mut settings.listeners {
        // `[::]` and `0.0.0.0` may stand side by side.
        listener.ipv6_only = listener.addresses.len() > 1;
        listener.transparent.clone_from(&front.transparent);
        listener.terms.decoy.clone_from(&front.decoy);
        if let Some(timeout) = module.running.timeout {
            listener.terms.connect_timeout = timeout;
        }
        many.add(listener)?;
    }
    for frontend in many.service.frontends() {
        frontend.announce();
    }
    many.serve_draining(front.drain, std::future::pending())
}
