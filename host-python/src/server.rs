//! A server, as an event loop sees it.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_runtime::{Capture, Phase, SwapOptions};

use crate::error::runtime_error;
use crate::flow::Flow;
use crate::limits::Limits;
use crate::module::{Capabilities, Module, asked, granted};
use crate::options::read_keys;
use crate::signals::Signal;
use crate::usage::Used;
use crate::wake::Wake;

/// The label under which every module asks for its first socket.
const LISTEN: &str = "listen";

/// A running module and its socket. Closed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Server {
    server: watm_runtime::Server,
    address: SocketAddr,
    wake: Py<Wake>,
    accept: (Arc<Signal>, Waker),
    closed: (Arc<Signal>, Waker),
}

/// Ports that are tried for two sockets of which each has to have the same.
const TRIES: usize = 64;

/// The address with a port that both TCP and UDP have to give, where any will do.
fn one_port(address: SocketAddr) -> SocketAddr {
    if address.port() != 0 {
        return address;
    }
    let free = |_| {
        let listener = TcpListener::bind(address).ok()?;
        let address = listener.local_addr().ok()?;
        UdpSocket::bind(address).ok().map(|_| address)
    };
    let found = (0..TRIES).find_map(free);
    // Or the one that cannot be had is told by who binds it.
    found.unwrap_or(address)
}

/// Start a module: bind its socket, run its `start`. Other Python threads go on meanwhile.
#[pyfunction]
#[pyo3(signature = (module, config, host, port, *, wake, transport, name, ipv6_only, host_crypto, keys, limits, record, pcap, key_log))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn start(
    py: Python<'_>,
    module: &Module,
    config: Vec<u8>,
    host: &str,
    port: u16,
    wake: Py<Wake>,
    transport: &str,
    name: &str,
    ipv6_only: bool,
    host_crypto: bool,
    keys: Vec<(String, PathBuf)>,
    limits: Limits,
    record: Option<PathBuf>,
    pcap: Option<PathBuf>,
    key_log: Option<PathBuf>,
) -> PyResult<Server> {
    let host: IpAddr = host
        .parse()
        .map_err(|_| PyValueError::new_err(format!("host: {host:?} is not an IP address")))?;
    let address = SocketAddr::new(host, port);
    let builder = watm_runtime::Server::builder(&module.0)
        .config(config)
        .limits(limits.over(watm_runtime::Limits::default()))
        .host_crypto(host_crypto)
        .keys(read_keys(&keys).map_err(runtime_error)?)
        .capture(Capture::wanted(pcap, key_log))
        .name(name);
    let builder = match transport {
        "udp" => builder.udp(LISTEN, address),
        "tcp" => builder.tcp(LISTEN, address),
        "both" => {
            let address = one_port(address);
            builder.tcp(LISTEN, address).udp(LISTEN, address)
        }
        _ => {
            return Err(PyValueError::new_err(format!(
                "transport: {transport:?} is not one of \"udp\", \"tcp\", \"both\""
            )));
        }
    };
    let mut builder = builder.ipv6_only(ipv6_only);
    if let Some(path) = record {
        builder = builder.record(path);
    }
    let server = py.detach(|| builder.start()).map_err(runtime_error)?;
    let address = server.local_addr(LISTEN).unwrap_or(address);
    let signal = |wake: &Wake| {
        let signal = wake.signal();
        let waker = signal.waker();
        (signal, waker)
    };
    Ok(Server {
        address,
        accept: signal(wake.get()),
        closed: signal(wake.get()),
        server,
        wake,
    })
}

#[pymethods]
impl Server {
    /// The key that wakes the loop when flows are waiting after `accept` found none.
    #[getter]
    fn accept_key(&self) -> u64 {
        self.accept.0.key
    }

    /// The key that wakes the loop after `closed` returned False.
    #[getter]
    fn closed_key(&self) -> u64 {
        self.closed.0.key
    }

    /// The address of the socket.
    fn getsockname(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Up to `max` new flows. Fewer: the loop is woken when there are more.
    fn accept(&self, max: usize) -> Vec<Flow> {
        let mut context = Context::from_waker(&self.accept.1);
        let mut flows = Vec::new();
        while flows.len() < max
            && let Poll::Ready(Some(flow)) = self.server.poll_accept(&mut context)
        {
            flows.push(Flow::new(flow, self.wake.get()));
        }
        flows
    }

    /// Reset every flow and free the port, soon. Again: no effect.
    fn close(&self) {
        self.server.close();
    }

    /// Whether `close` is done.
    fn closed(&self) -> bool {
        let mut context = Context::from_waker(&self.closed.1);
        self.server.poll_closed(&mut context).is_ready()
    }

    /// `close`, and wait for it, at most for `timeout`. For the end of the process only.
    fn finish(&self, py: Python<'_>, timeout: Duration) {
        self.server.close();
        py.detach(|| {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut context = Context::from_waker(&waker);
            let deadline = Instant::now() + timeout;
            while self.server.poll_closed(&mut context).is_pending() {
                match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => break,
                }
            }
        });
    }

    /// How the module is doing.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let status = py.detach(|| self.server.status()).map_err(runtime_error)?;
        Status::new(py, status)
    }

    /// What clients need in order to connect at `host` and `port`. Contains secrets.
    fn client_configs(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<Vec<ClientConfig>> {
        let configs = py
            .detach(|| self.server.client_configs(host, port))
            .map_err(runtime_error)?;
        Ok(configs
            .into_iter()
            .map(|config| ClientConfig {
                peer: config.peer,
                name: config.name,
                media_type: config.media_type,
                content: config.content,
            })
            .collect())
    }

    /// Put another module in the place of the one that serves; the number of its generation. On
    /// an error the old one serves as before. Takes as long as `probation`.
    #[pyo3(signature = (module, *, config, keys, drain, probation))]
    fn swap(
        &self,
        py: Python<'_>,
        module: &Module,
        config: Option<Vec<u8>>,
        keys: Option<Vec<(String, PathBuf)>>,
        drain: Option<Duration>,
        probation: Duration,
    ) -> PyResult<u32> {
        let keys = keys.map(|keys| read_keys(&keys)).transpose();
        let options = SwapOptions {
            config,
            keys: keys.map_err(runtime_error)?,
            drain,
            probation,
        };
        py.detach(|| self.server.swap(&module.0, options))
            .map_err(runtime_error)
    }

    /// Replace the configuration; on a `ValueError` the old one stays in force.
    fn reconfigure(&self, py: Python<'_>, config: Vec<u8>) -> PyResult<()> {
        py.detach(|| self.server.reconfigure(config))
            .map_err(runtime_error)
    }
}

impl Server {
    /// Another handle on it.
    pub(crate) fn handle(&self) -> watm_runtime::Server {
        self.server.clone()
    }
}

struct Unpark(thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How a module is doing.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Status {
    /// "running", "restarting", "failed" or "closed".
    phase: &'static str,
    /// Why it failed.
    reason: Option<String>,
    /// How many instances there were before the one that serves, by swaps and restarts.
    generation: u32,
    /// Those that run: the one that serves, and older ones that finish their flows. Empty for a
    /// WATER module, which has one for each connection.
    generations: Vec<Py<Generation>>,
    /// The one that serves, or is to serve again. None: the server is closed.
    module: Option<Py<Module>>,
    /// What its seal asks for. None: it has no seal.
    asked: Option<Capabilities>,
    /// The most that it may have. None: it has no seal, and no such bound.
    granted: Option<Capabilities>,
    /// What it has used.
    used: Py<Used>,
    /// Files with its packets or keys that are written, a sentence each.
    captures: Vec<String>,
    /// In the order of the configuration.
    peers: Vec<Py<PeerStatus>>,
    /// Flows open now.
    flows: u32,
    /// The module's counters, and the host's, whose names begin with "host.".
    counters: std::collections::BTreeMap<String, u64>,
}

impl Status {
    /// As Python has it.
    pub(crate) fn new(py: Python<'_>, status: watm_runtime::Status) -> PyResult<Status> {
        let (phase, reason) = match status.phase {
            Phase::Running => ("running", None),
            Phase::Restarting => ("restarting", None),
            Phase::Failed(reason) => ("failed", Some(reason)),
            Phase::Closed => ("closed", None),
        };
        let peers = status.peers.into_iter().map(|peer| {
            Py::new(
                py,
                PeerStatus {
                    name: peer.name,
                    endpoint: peer.endpoint,
                    last_handshake: peer.last_handshake.map(|age| age.as_secs_f64()),
                    received_bytes: peer.received_bytes,
                    sent_bytes: peer.sent_bytes,
                    round_trip: peer.round_trip.map(|time| time.as_secs_f64()),
                    loss: peer.loss_permille.map(|loss| f64::from(loss) / 1000.0),
                },
            )
        });
        let generations = status.generations.into_iter().map(|known| {
            Py::new(
                py,
                Generation {
                    number: known.number,
                    module: known.module,
                    sha256: known.sha256,
                    flows: known.flows,
                    age: known.age.as_secs_f64(),
                    draining: known.draining.map(|age| age.as_secs_f64()),
                },
            )
        });
        Ok(Status {
            phase,
            reason,
            generation: status.generation,
            generations: generations.collect::<PyResult<_>>()?,
            asked: status.module.as_ref().and_then(asked),
            granted: status.module.as_ref().and_then(granted),
            module: status
                .module
                .map(|it| Py::new(py, Module(it)))
                .transpose()?,
            used: Py::new(py, Used::new(py, status.used)?)?,
            captures: status.captures,
            peers: peers.collect::<PyResult<_>>()?,
            flows: status.flows,
            counters: status.counters.into_iter().collect(),
        })
    }
}

/// One instance of a server's module.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Generation {
    /// Counted from 0.
    number: u32,
    /// The name that its module was loaded under.
    module: String,
    /// Of the module's bytes, in hexadecimal.
    sha256: String,
    /// Flows open now.
    flows: u32,
    /// Seconds since it was started.
    age: f64,
    /// Seconds since another one serves; None: it does.
    draining: Option<f64>,
}

/// One remote party that a module knows by name.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct PeerStatus {
    /// What the extra info "peer" of its flows is: a public key, a user name.
    name: String,
    /// Where it was last heard, as address:port.
    endpoint: Option<String>,
    /// Age of the last completed handshake, in seconds.
    last_handshake: Option<f64>,
    /// Inner bytes from the peer.
    received_bytes: u64,
    /// Inner bytes to the peer.
    sent_bytes: u64,
    /// How long the way to it and back takes, in seconds, by what was seen lately.
    round_trip: Option<f64>,
    /// The share of its packets that were lost lately.
    loss: Option<f64>,
}

/// What one client needs in order to connect.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct ClientConfig {
    /// The peer it is for, if the module tells peers apart.
    peer: Option<String>,
    /// A file name to suggest.
    name: String,
    /// The content's media type.
    media_type: String,
    /// The file.
    content: String,
}
