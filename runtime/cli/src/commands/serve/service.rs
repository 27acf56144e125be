//! All listeners of `watm serve`: started, reloaded and drained together.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::clients::Clients;
use super::flow_sockets::FlowSockets;
use super::frontend::{Frontend, Serving};
use super::metrics::Metrics;
use super::settings::{Listener, Settings};
use crate::failure::Failure;
use crate::loading::LoadingOptions;
use crate::system::most_descriptors;

/// The time limit for logging connections that were ended by force, and the interval of checks.
const FORCING: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct Service {
    pub(super) began: Instant,
    pub(super) metrics: Metrics,
    clients: Arc<Clients>,
    flow_sockets: Arc<FlowSockets>,
    loading: LoadingOptions,
    frontends: Mutex<Vec<Arc<Frontend>>>,
    draining: AtomicBool,
}

impl Service {
    /// Creates a service without listeners.
    pub(super) fn new(clients: Clients, loading: &LoadingOptions) -> Service {
        let clients = Arc::new(clients);
        Service {
            began: Instant::now(),
            metrics: Metrics::new(clients.clone()),
            clients,
            flow_sockets: Arc::new(FlowSockets::new(most_descriptors())),
            loading: loading.clone(),
            frontends: Mutex::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Starts all listeners, or none. Blocks. May ask a person for approval.
    pub(super) fn start(settings: &Settings, loading: &LoadingOptions) -> Result<Service, Failure> {
        let service = Service::new(Clients::new(settings.clients), loading);
        for listener in &settings.listeners {
            let serving = Serving::load(listener, loading, true)?;
            service.add(listener, serving)?;
        }
        Ok(service)
    }

    pub(super) fn frontends(&self) -> Vec<Arc<Frontend>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Frontend>>> {
        self.frontends.lock().expect("no panic under this lock")
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Applies new settings, all of them or none. Reads modules and their configurations again.
    /// Listeners may come and go; the addresses and sockets of existing ones stay.
    pub(super) async fn reload(&self, settings: Settings) -> Result<(), Failure> {
        let running = self.frontends();
        let find = |name: &str| {
            let mut running = running.iter();
            running.find(|frontend| frontend.common.listener == name)
        };
        let mut changed = Vec::new();
        let mut added = Vec::new();
        for listener in settings.listeners {
            if let Some(frontend) = find(&listener.name) {
                check_bound(&frontend.settings(), &listener)?;
            }
            let loading = self.loading.clone();
            let serving = spawn_blocking(move || {
                Serving::load(&listener, &loading, false).map(|serving| (listener, serving))
            });
            let (listener, serving) = serving.await.map_err(Failure::failed)??;
            match find(&listener.name) {
                Some(frontend) => changed.push((frontend.clone(), listener, serving)),
                None => added.push((listener, serving)),
            }
        }
        let mut swapped = Vec::new();
        for (frontend, _, serving) in &changed {
            match frontend.swap(serving.clone()).await {
                Ok(Some(before)) => swapped.push((frontend, before)),
                Ok(None) => {}
                Err(error) => {
                    swap_back(swapped).await;
                    return Err(Failure::from(error)
                        .about(&format!("listener {}", frontend.common.listener)));
                }
            }
        }
        let mut new = Vec::new();
        for (listener, serving) in added {
            match self.begin(&listener, serving) {
                Ok(frontend) => new.push(frontend),
                Err(failure) => {
                    for frontend in new {
                        frontend.close().await;
                    }
                    swap_back(swapped).await;
                    return Err(failure);
                }
            }
        }
        let mut kept = Vec::new();
        for (frontend, listener, _) in changed {
            frontend.set_settings(listener);
            kept.push(frontend);
        }
        let is_kept = |one: &Arc<Frontend>| kept.iter().any(|other| Arc::ptr_eq(one, other));
        for frontend in running.iter().filter(|frontend| !is_kept(frontend)) {
            tokio::spawn(retire(frontend.clone()));
        }
        kept.extend(new);
        *self.lock() = kept;
        Ok(())
    }

    /// Adds this listener. Blocks while its module starts.
    pub(super) fn add(&self, listener: &Listener, serving: Serving) -> Result<(), Failure> {
        let frontend = self.begin(listener, serving)?;
        self.lock().push(frontend);
        Ok(())
    }

    fn begin(&self, listener: &Listener, serving: Serving) -> Result<Arc<Frontend>, Failure> {
        let start = || {
            Frontend::start(
                listener,
                serving,
                &self.metrics,
                &self.clients,
                &self.flow_sockets,
            )
        };
        tokio::task::block_in_place(start).map(Arc::new)
    }

    /// Loads the module of one listener again, with its configuration. Returns true if it differs.
    pub(super) async fn reload_module(&self, frontend: &Frontend) -> Result<bool, Failure> {
        let running = frontend.module().await;
        let (settings, loading) = (frontend.settings(), self.loading.bound_to(&running));
        let serving = spawn_blocking(move || Serving::load(&settings, &loading, false));
        let serving = serving.await.map_err(Failure::failed)??;
        let about =
            |error| Failure::from(error).about(&format!("listener {}", frontend.common.listener));
        Ok(frontend.swap(serving).await.map_err(about)?.is_some())
    }

    /// Stops accepting, and waits until everything has ended. Returns the number of connections
    /// that were ended by force, without datagram flows.
    pub(super) async fn drain(&self, patience: Duration, hurry: impl Future<Output = ()>) -> usize {
        self.draining.store(true, Ordering::Relaxed);
        let frontends = self.frontends();
        let drained = async {
            let all = frontends.iter().cloned();
            let all = all.map(|frontend| async move { frontend.drain().await });
            all.collect::<tokio::task::JoinSet<_>>().join_all().await;
        };
        let drained = tokio::select! {
            drained = timeout(patience, drained) => drained.is_ok(),
            () = hurry => false,
        };
        let mut forced = 0;
        if !drained {
            for frontend in &frontends {
                forced += frontend.force();
            }
        }
        let ended = async {
            while frontends.iter().any(|frontend| frontend.is_open()) {
                sleep(INTERVAL).await;
            }
        };
        // Connections that are still open then are not logged.
        let _ = timeout(FORCING, ended).await;
        for frontend in frontends {
            frontend.close().await;
        }
        forced
    }

    /// Returns the files that `--watch` follows, with their listeners.
    pub(super) fn module_files(&self) -> Vec<(PathBuf, Arc<Frontend>)> {
        let all = self.frontends().into_iter();
        all.map(|frontend| (frontend.settings().module, frontend))
            .collect()
    }
}

/// Ends a listener that is no longer in the configuration.
async fn retire(frontend: Arc<Frontend>) {
    frontend.drain().await;
    frontend.close().await;
}

async fn swap_back(swapped: Vec<(&Arc<Frontend>, Serving)>) {
    for (frontend, before) in swapped.into_iter().rev() {
        if let Err(error) = frontend.swap(before).await {
            tracing::error!(
                target: "watm",
                "listener {}: rollback failed: {error}",
                frontend.common.listener
            );
        }
    }
}

/// Checks that everything a listener is bound to stays the same.
fn check_bound(now: &Listener, next: &Listener) -> Result<(), Failure> {
    let differs = [
        ("addresses", now.addresses != next.addresses),
        ("ipv6-only", now.ipv6_only != next.ipv6_only),
        ("workers", now.workers != next.workers),
        ("backlog", now.backlog != next.backlog),
        ("reach", now.reach != next.reach),
        ("memory-mib", now.memory != next.memory),
        ("descriptors", now.descriptors != next.descriptors),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        Some((key, _)) => Err(Failure::unusable(format!(
            "listener {}: {key}: cannot change while it runs; restart the program, or add a \
             listener with another name",
            now.name
        ))),
        None => Ok(()),
    }
}
