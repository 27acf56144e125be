//! A running listener: its module on each of its workers. `service` starts, reloads and drains it.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use watm_runtime::{
    BindTransparent, DatagramSocket, Error, Keys, Limits, Module, Network, Server, ServerBuilder,
    Status, SwapOptions, share_address, share_datagram_address, swap_all,
};

use super::attempts::Attempts;
use super::carry::{Common, FLOW_BYTES, begin, clear};
use super::clients::Clients;
use super::flow_sockets::FlowSockets;
use super::metrics::Metrics;
use super::records::Records;
use super::settings::{Introduction, Listener, Terms};
use super::values::{Place, Protocol, ProxyHeader, Upstream, Workers, steering};
use crate::accept_loop::{Complaints, announce};
use crate::failure::Failure;
use crate::keys;
use crate::loading::LoadingOptions;
use crate::reporting::metrics::Group;
use crate::reporting::peers::merged;
use crate::shape::{self, Needs};

/// The label of the modules' socket.
const LISTEN: &str = "listen";

/// The interval of checks whether connections have ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// The time limit for handshakes while the program ends.
const HANDSHAKES: Duration = Duration::from_secs(5);

/// The time limit for a module's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// A module in service, with its configuration.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) module: Module,
    pub(super) config: Vec<u8>,
    /// The keys that it may sign with.
    pub(super) keys: Keys,
    /// Set if its flows continue from their clients' addresses.
    pub(super) transparent: Option<BindTransparent>,
}

impl Serving {
    /// Loads the module and the files that these settings name. Starts nothing.
    pub(super) fn load(
        settings: &Listener,
        loading: &LoadingOptions,
        asks: bool,
    ) -> Result<Serving, Failure> {
        let failed = |failure: Failure| failure.about(&format!("listener {}", settings.name));
        let config = settings.config.read().map_err(failed)?;
        let keys = keys::read(&settings.keys).map_err(|error| failed(error.into()))?;
        let module = loading.load(&settings.module, asks).map_err(failed)?;
        places(settings, &module).map_err(failed)?;
        check_shape(settings, &module).map_err(failed)?;
        let transparent = settings.transparent.clone();
        let transparent = transparent
            .map(|how| module.bind_transparent(how))
            .transpose();
        Ok(Serving {
            config,
            keys,
            transparent: transparent.map_err(|error| failed(error.into()))?,
            module,
        })
    }

    fn is(&self, other: &Serving) -> bool {
        self.module.info().sha256 == other.module.info().sha256
            && self.config == other.config
            && self.keys == other.keys
    }
}

pub(super) struct Frontend {
    pub(super) common: Arc<Common>,
    pub(super) settings: Mutex<Listener>,
    /// The bound addresses, with the system's choice for port 0.
    pub(super) addresses: Vec<(Protocol, SocketAddr)>,
    workers: Vec<Server>,
    /// True if several workers have sockets for datagrams at one address.
    shares_datagrams: bool,
    serving: tokio::sync::Mutex<Serving>,
}

impl Frontend {
    /// Returns the module in service.
    pub(super) async fn module(&self) -> Module {
        self.serving.lock().await.module.clone()
    }

    /// Binds the addresses, and starts the module on each worker. Blocks.
    pub(super) fn start(
        settings: &Listener,
        serving: Serving,
        metrics: &Metrics,
        clients: &Arc<Clients>,
        flow_sockets: &Arc<FlowSockets>,
    ) -> Result<Frontend, Failure> {
        let failed = |failure: Failure| failure.about(&format!("listener {}", settings.name));
        let common = Arc::new(Common {
            listener: settings.name.clone(),
            terms: Mutex::new(Arc::new(settings.terms.clone())),
            transparent: Mutex::new(serving.transparent.clone()),
            gate: Arc::default(),
            attempts: Attempts::default(),
            clients: clients.clone(),
            metrics: metrics.listener(&settings.name),
            complaints: Complaints::default(),
            records: Records::default(),
            flow_sockets: flow_sockets.clone(),
            draining: watch::channel(false).0,
            force: watch::channel(false).0,
        });
        let mut workers = Vec::<Server>::new();
        let mut addresses = Vec::new();
        let mut shares_datagrams = false;
        for (address, kinds) in places(settings, &serving.module).map_err(failed)? {
            let sockets = sockets(settings, address, kinds, &serving.module).map_err(failed)?;
            let Some(first) = sockets.first() else {
                continue;
            };
            shares_datagrams |= sockets.iter().filter(|it| it.udp.is_some()).count() > 1;
            for (protocol, address) in first.addresses().map_err(Failure::failed)? {
                addresses.push((protocol, address));
            }
            for sockets in sockets {
                let mut builder = worker(settings, &serving, sockets).admission(common.clone());
                if let Some(first) = workers.first() {
                    builder = builder.beside(first);
                }
                workers.push(builder.start().map_err(|error| failed(error.into()))?);
            }
        }
        for worker in &workers {
            worker.spawn(accept(worker.clone(), common.clone()));
        }
        if let Some(first) = workers.first() {
            first.spawn(clear(common.clone()));
        }
        warn_if_several(settings, &serving.module, workers.len());
        Ok(Frontend {
            common,
            settings: Mutex::new(settings.clone()),
            addresses,
            workers,
            shares_datagrams,
            serving: tokio::sync::Mutex::new(serving),
        })
    }

    /// Checks that the module would run with this configuration, without binding its addresses:
    /// starts it once on a local address that nobody knows. Blocks.
    pub(super) fn check(settings: &Listener, serving: &Serving) -> Result<(), Failure> {
        let failed = |failure: Failure| failure.about(&format!("listener {}", settings.name));
        let kinds = places(settings, &serving.module).map_err(failed)?;
        let Some(kinds) = kinds.values().next() else {
            return Ok(());
        };
        let own: SocketAddr = ([127, 0, 0, 1], 0).into();
        let one = Listener {
            workers: Workers::Exactly(1),
            ipv6_only: false,
            ..settings.clone()
        };
        for sockets in sockets(&one, own, *kinds, &serving.module).map_err(failed)? {
            let worker = worker(settings, serving, sockets).start();
            worker.map_err(|error| failed(error.into()))?.close();
        }
        Ok(())
    }

    /// Announces the addresses that clients connect to.
    pub(super) fn announce(&self) {
        for (protocol, address) in &self.addresses {
            announce(Place::of(*protocol, *address));
        }
    }

    /// Replaces the module in service, on all workers or on none. Returns the previous one if it
    /// differs.
    pub(super) async fn swap(&self, next: Serving) -> Result<Option<Serving>, Error> {
        let mut serving = self.serving.lock().await;
        if serving.is(&next) {
            self.common.set_transparent(next.transparent.clone());
            serving.transparent = next.transparent;
            return Ok(None);
        }
        let options = SwapOptions {
            config: Some(next.config.clone()),
            keys: Some(next.keys.clone()),
            ..SwapOptions::default()
        };
        let (new, old) = (next.module.info(), serving.module.info());
        if self.shares_datagrams && steering(new) != steering(old) {
            return Err(Error::Options(format!(
                "{}: its datagrams name their worker in another way than those of the module in \
                 service; restart to use it",
                next.module.name()
            )));
        }
        let before = (&serving.module, &*serving.config, &serving.keys);
        let swapped = swap_all(&self.workers, &next.module, options, before).await;
        self.common.metrics.swapped(swapped.is_ok());
        swapped?;
        warn_if_several(&self.settings(), &next.module, self.workers.len());
        self.common.set_transparent(next.transparent.clone());
        Ok(Some(std::mem::replace(&mut *serving, next)))
    }

    /// Sets the terms of future connections.
    pub(super) fn set_settings(&self, settings: Listener) {
        *self.common.terms.lock().expect("no panic under this lock") =
            Arc::new(settings.terms.clone());
        *self.settings.lock().expect("no panic under this lock") = settings;
    }

    pub(super) fn settings(&self) -> Listener {
        self.settings
            .lock()
            .expect("no panic under this lock")
            .clone()
    }

    pub(super) fn terms(&self) -> Arc<Terms> {
        self.common.terms()
    }

    pub(super) async fn serving(&self) -> Serving {
        self.serving.lock().await.clone()
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Stops accepting, and waits until everything has ended. Datagram flows end once they are idle
    /// for a moment.
    pub(super) async fn drain(&self) {
        self.common.draining.send_replace(true);
        for worker in &self.workers {
            // An error means that it is closed, and accepts nothing.
            let _ = worker.stop_accepting().await;
        }
        let asked = Instant::now();
        while !self.is_empty() {
            if asked.elapsed() >= HANDSHAKES {
                self.common.gate.close_handshakes();
            }
            sleep(DRAIN_INTERVAL).await;
        }
    }

    /// Ends everything that is still open. Returns the number of connections. Datagram flows do not
    /// count, since they have no end to wait for.
    pub(super) fn force(&self) -> usize {
        let mut open = self.common.gate.open_streams();
        if open == 0 && self.any_worker_counts(&["host.connections_open"]) {
            // At least one, whose flow the module has not offered yet.
            open = 1;
        }
        self.common.force.send_replace(true);
        open
    }

    /// Returns true if any connection is being carried.
    pub(super) fn is_open(&self) -> bool {
        self.common.gate.open() > 0
    }

    /// Closes all workers. Their addresses are free afterwards.
    pub(super) async fn close(&self) {
        for worker in &self.workers {
            worker.close();
        }
        for worker in &self.workers {
            worker.wait_closed().await;
        }
    }

    fn is_empty(&self) -> bool {
        let open = ["host.connections_open", "host.flows"];
        !self.is_open() && !self.any_worker_counts(&open)
    }

    /// Returns true if one of these counters of the host is above zero. No module is asked, since one
    /// may not answer.
    fn any_worker_counts(&self, names: &[&str]) -> bool {
        self.workers.iter().any(|worker| {
            let counters = worker.host_counters();
            let mut counts = names.iter().filter_map(|name| counters.get(*name));
            counts.any(|count| *count > 0)
        })
    }

    /// Returns the status of each worker. Workers that do not answer are left out.
    pub(super) async fn statuses(&self) -> Vec<Status> {
        // All are asked at once, so that many that do not answer take no longer than one.
        let ask =
            |worker: Server| async move { timeout(STATUS_TIMEOUT, worker.status_async()).await };
        let asked: Vec<_> = self
            .workers
            .iter()
            .cloned()
            .map(ask)
            .map(tokio::spawn)
            .collect();
        let mut all = Vec::new();
        for answer in asked {
            if let Ok(Ok(Ok(status))) = answer.await {
                all.push(status);
            }
        }
        all
    }

    /// Returns the sums of the workers' counters, and their peers.
    pub(super) async fn counters(&self) -> Group {
        let statuses = self.statuses().await;
        let mut sums = BTreeMap::<String, u64>::new();
        for (name, count) in statuses.iter().flat_map(|status| &status.counters) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        Group {
            kind: "listener",
            name: self.common.listener.clone(),
            counters: sums.into_iter().collect(),
            peers: merged(&statuses),
        }
    }
}

/// The kinds of sockets at one address.
#[derive(Clone, Copy, Default)]
struct Kinds {
    tcp: bool,
    udp: bool,
}

/// Returns the kinds of sockets by address. Fails if the module does not support the configured
/// protocols.
fn places(settings: &Listener, module: &Module) -> Result<BTreeMap<SocketAddr, Kinds>, Failure> {
    let taken = module.listens_on();
    let mut places = BTreeMap::<SocketAddr, Kinds>::new();
    for place in &settings.addresses {
        let address = place.address;
        let kinds = places.entry(address).or_default();
        match (place.protocol, taken) {
            (_, []) => {
                return Err(Failure::unusable(format!(
                    "module: {} does not listen; must be a module with the role listener",
                    module.name()
                )));
            }
            (Some(Protocol::Udp), _) | (None, [Network::Udp]) => kinds.udp = true,
            // Connections are the default for a module that accepts both.
            (Some(Protocol::Tcp) | None, _) => kinds.tcp = true,
        }
    }
    if places.values().any(|kinds| kinds.udp) {
        check_for_datagrams(&settings.terms)?;
    }
    Ok(places)
}

/// Refuses options that the module's shape cannot honour.
fn check_shape(settings: &Listener, module: &Module) -> Result<(), Failure> {
    let terms = &settings.terms;
    let upstreams = terms.upstream.all();
    let tells = matches!(terms.introduction, Introduction::Proxy(_));
    let dynamic = upstreams
        .iter()
        .any(|upstream| **upstream == Upstream::Dynamic);
    let by_family = matches!(terms.upstream, Upstream::ByFamily { .. });
    for (option, needs, wanted) in [
        ("proxy-header", Needs::Client, tells),
        ("transparent", Needs::Client, settings.transparent.is_some()),
        ("upstream by family", Needs::Client, by_family),
        (
            "connections-per-client",
            Needs::Client,
            terms.per_client.is_some(),
        ),
        ("upstream = \"dynamic\"", Needs::Facts, dynamic),
        ("decoy", Needs::Facts, terms.decoy.is_some()),
    ] {
        if wanted {
            shape::check(module, option, needs)?;
        }
    }
    Ok(())
}

/// Refuses options for connections alone where datagrams are accepted.
fn check_for_datagrams(terms: &Terms) -> Result<(), Failure> {
    if let Introduction::Proxy(ProxyHeader::V1) = terms.introduction {
        return Err(Failure::unusable(
            "proxy-header: must be v2 for datagrams, which v1 does not support",
        ));
    }
    let is_path = |upstream: &&Upstream| matches!(upstream, Upstream::Unix(_));
    let [upstream, decoy] = [
        terms.upstream.all().iter().any(is_path),
        terms.decoy.as_ref().iter().any(is_path),
    ];
    match (upstream, decoy) {
        (false, false) => Ok(()),
        (upstream, _) => Err(Failure::unusable(format!(
            "{}: must be host:port for datagrams, which unix: does not support",
            if upstream { "upstream" } else { "decoy" }
        ))),
    }
}

/// The sockets of one worker at an address.
struct Sockets {
    tcp: Option<TcpListener>,
    udp: Option<DatagramSocket>,
}

impl Sockets {
    fn addresses(&self) -> io::Result<Vec<(Protocol, SocketAddr)>> {
        let tcp = self.tcp.as_ref().map(|socket| socket.local_addr());
        let tcp = tcp.map(|address| Ok((Protocol::Tcp, address?)));
        let udp = self.udp.as_ref().map(|it| it.socket().local_addr());
        let udp = udp.map(|address| Ok((Protocol::Udp, address?)));
        tcp.into_iter().chain(udp).collect()
    }
}

/// Warns if several workers run a module that must run alone. Two addresses or an explicit number
/// of workers cause this.
fn warn_if_several(settings: &Listener, module: &Module, workers: usize) {
    if workers > 1 && module.info().alone {
        let (listener, name) = (&*settings.name, module.name());
        tracing::warn!(
            target: "watm::server",
            listener,
            "{name} must run as one instance, but {workers} workers run: workers do not share \
             replay state; set workers to 1"
        );
    }
}

/// Binds the sockets of each worker at this address.
fn sockets(
    settings: &Listener,
    mut address: SocketAddr,
    kinds: Kinds,
    module: &Module,
) -> Result<Vec<Sockets>, Failure> {
    let workers = settings.workers;
    let (mut listeners, mut shared) = (Vec::new(), Vec::new());
    if kinds.tcp {
        let (only, backlog) = (settings.ipv6_only, settings.backlog);
        listeners = share_address(address, only, workers.count(module.info()), backlog)?;
        if let Some(first) = listeners.first() {
            // Contains the system's choice for port 0.
            address = first.local_addr().map_err(Failure::failed)?;
        }
    }
    if kinds.udp {
        let (only, info) = (settings.ipv6_only, module.info());
        let count = workers.count_for_datagrams(info);
        shared = share_datagram_address(address, only, count, steering(info))?;
    }
    let count = listeners.len().max(shared.len());
    let (mut listeners, mut shared) = (listeners.into_iter(), shared.into_iter());
    let of_one = |_| Sockets {
        tcp: listeners.next(),
        udp: shared.next(),
    };
    Ok((0..count).map(of_one).collect())
}

/// Prepares a worker with these sockets.
fn worker(settings: &Listener, serving: &Serving, sockets: Sockets) -> ServerBuilder {
    let limits = Limits::for_connections_of(serving.module.info().kind);
    let limits = Limits {
        memory_bytes: settings.memory.unwrap_or(limits.memory_bytes),
        descriptors: settings.descriptors.unwrap_or(limits.descriptors),
        connect_timeout: settings.terms.connect_timeout,
        flow_bytes: FLOW_BYTES,
        // The module may offer a flow for each datagram of a burst before one is accepted.
        accept_backlog: limits.flows,
        ..limits
    };
    let mut builder = Server::builder(&serving.module)
        .config(serving.config.clone())
        .keys(serving.keys.clone())
        .reach(settings.reach.clone())
        .limits(limits)
        .name(&settings.name);
    if let Some(socket) = sockets.udp {
        builder = builder.udp_socket(LISTEN, socket);
    }
    if let Some(listener) = sockets.tcp {
        builder = builder.tcp_listener(LISTEN, listener);
    }
    builder
}

/// Accepts flows on the worker's own thread, where its connections stay.
async fn accept(worker: Server, common: Arc<Common>) {
    while let Some(flow) = worker.accept().await {
        begin(&common, flow);
    }
}
