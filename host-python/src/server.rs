//! Servers for event loops. The package's `server.py` starts them.

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
use crate::launch::Device;
use crate::limits::Limits;
use crate::module::{Capabilities, Module, asked, granted};
use crate::options::read_keys;
use crate::signals::Signal;
use crate::usage::Used;
use crate::wake::Wake;

/// The label under which every module requests its first socket.
const LISTEN: &str = "listen";

/// The label of the device that a module for packets requests.
const PACKETS: &str = "tun";

/// A running module and its socket. Closed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Server {
    server: watm_runtime::Server,
    address: SocketAddr,
    wake: Py<Wake>,
    accept: (Arc<Signal>, Waker),
    closed: (Arc<Signal>, Waker),
}

/// The number of ports that are tried for two sockets that need the same one.
const TRIES: usize = 64;

/// Returns an address whose port is free for both TCP and UDP, if any port will do.
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
    // Binding reports the error if no port is free.
    found.unwrap_or(address)
}

/// Starts a module: binds its socket and runs its `start`. Other Python threads continue meanwhile.
#[pyfunction]
#[pyo3(signature = (module, config, host, port, *, wake, transport, name, ipv6_only, host_crypto, keys, limits, record, pcap, pcap_size, pcap_files, key_log, device))]
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
    pcap_size: Option<u64>,
    pcap_files: Option<usize>,
    key_log: Option<PathBuf>,
    device: Option<Device>,
) -> PyResult<Server> {
    let host: IpAddr = host
        .parse()
        .map_err(|_| PyValueError::new_err(format!("host: {host:?} is not an IP address")))?;
    let address = SocketAddr::new(host, port);
    let capture = Capture::wanted(pcap, key_log, pcap_size, pcap_files).map_err(runtime_error)?;
    let builder = watm_runtime::Server::builder(&module.0)
        .config(config)
        .limits(limits.over(watm_runtime::Limits::default()))
        .host_crypto(host_crypto)
        .keys(read_keys(&keys).map_err(runtime_error)?)
        .capture(capture.map(Capture::wait_for_secrets))
        .name(name);
    let builder = match transport {
        "udp" => builder.udp(LISTEN, address),
        "tcp" => builder.tcp(LISTEN, address),
        "both" => {
            let address = one_port(address);
            builder.tcp(LISTEN, address).udp(LISTEN, address)
        }
        "packets" => match device {
            Some(device) => builder.packets(PACKETS, device.take()?),
            None => {
                let reason = "transport: \"packets\" needs a device";
                return Err(PyValueError::new_err(reason));
            }
        },
        _ => {
            return Err(PyValueError::new_err(format!(
                "transport: {transport:?} is not one of \"udp\", \"tcp\", \"both\", \"packets\""
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

    /// Returns the address of the socket.
    fn getsockname(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Accepts up to `max` new flows. After fewer, the loop is woken when there are more.
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

    /// Resets every flow and frees the port, soon. Repeated calls have no effect.
    fn close(&self) {
        self.server.close();
    }

    /// Returns True once `close` has finished.
    fn closed(&self) -> bool {
        let mut context = Context::from_waker(&self.closed.1);
        self.server.poll_closed(&mut context).is_ready()
    }

    /// Closes the server and waits for that, at most for `timeout`. For the end of the process
    /// only.
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

    /// Returns the status of the module.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let status = py.detach(|| self.server.status()).map_err(runtime_error)?;
        Status::new(py, status)
    }

    /// Returns the configurations that clients need to connect at `host` and `port`. They contain
    /// secrets.
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

    /// Replaces the module that serves. Returns the number of the new generation. On an error the
    /// old one continues. Takes as long as `probation`.
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

    /// Begins a capture of the module's packets while it runs.
    #[pyo3(signature = (pcap, *, pcap_size, pcap_files))]
    fn start_capture(
        &self,
        py: Python<'_>,
        pcap: PathBuf,
        pcap_size: Option<u64>,
        pcap_files: Option<usize>,
    ) -> PyResult<()> {
        let capture = Capture::wanted(Some(pcap), None, pcap_size, pcap_files);
        py.detach(|| match capture? {
            Some(capture) => self.server.start_capture(capture.wait_for_secrets()),
            None => Ok(()),
        })
        .map_err(runtime_error)
    }

    /// Ends the capture, if there is one.
    fn stop_capture(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.server.stop_capture())
            .map_err(runtime_error)
    }

    /// Adds lines of TLS secrets to the capture, if there is one.
    fn tls_secret(&self, py: Python<'_>, lines: &str) {
        py.detach(|| self.server.tls_secret(lines));
    }

    /// Replaces the configuration. On a `ValueError` the old one stays in force.
    fn reconfigure(&self, py: Python<'_>, config: Vec<u8>) -> PyResult<()> {
        py.detach(|| self.server.reconfigure(config))
            .map_err(runtime_error)
    }
}

impl Server {
    /// Returns another handle to the server.
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

/// The status of a module.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Status {
    /// "running", "restarting", "failed" or "closed".
    phase: &'static str,
    /// The reason why it failed.
    reason: Option<String>,
    /// The number of instances before the one that serves, by swaps and restarts.
    generation: u32,
    /// Running instances: the one that serves, and older ones that finish their flows. Empty for a
    /// WATER module, which has one for each connection.
    generations: Vec<Py<Generation>>,
    /// The module that serves, or will serve again. None if the server is closed.
    module: Option<Py<Module>>,
    /// The capabilities that its seal requests. None if it has no seal.
    asked: Option<Capabilities>,
    /// The most capabilities that it may use. None if it has no seal, and no such limit.
    granted: Option<Capabilities>,
    /// The resources that it has used.
    used: Py<Used>,
    /// Captures of its packets or keys that are being written, a sentence each.
    captures: Vec<String>,
    /// Peers, in the order of the configuration.
    peers: Vec<Py<PeerStatus>>,
    /// Flows open now.
    flows: u32,
    /// The module's counters, and the host's, whose names begin with "host.".
    counters: std::collections::BTreeMap<String, u64>,
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        let reason = match &self.reason {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        format!(
            "<Status {}{reason}, generation {}, {} flows, {} peers>",
            self.phase,
            self.generation,
            self.flows,
            self.peers.len()
        )
    }
}

impl Status {
    /// Converts the runtime's status.
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

/// An instance of a server's module.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Generation {
    /// The number, counted from 0.
    number: u32,
    /// The name that its module was loaded under.
    module: String,
    /// The SHA-256 of the module's bytes, in hexadecimal.
    sha256: String,
    /// Flows open now.
    flows: u32,
    /// Seconds since it was started.
    age: f64,
    /// Seconds since another one took over; None while it serves.
    draining: Option<f64>,
}

/// A remote party that a module knows by name.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct PeerStatus {
    /// The value of the extra info "peer" of its flows: a public key, a user name.
    name: String,
    /// The endpoint at which it was last heard, as address:port.
    endpoint: Option<String>,
    /// The age of the last completed handshake, in seconds.
    last_handshake: Option<f64>,
    /// Inner bytes from the peer.
    received_bytes: u64,
    /// Inner bytes to the peer.
    sent_bytes: u64,
    /// The recent round-trip time, in seconds.
    round_trip: Option<f64>,
    /// The recent share of lost packets.
    loss: Option<f64>,
}

/// The configuration that a client needs to connect.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct ClientConfig {
    /// The peer it is for, if the module tells peers apart.
    peer: Option<String>,
    /// A suggested file name.
    name: String,
    /// The content's media type.
    media_type: String,
    /// The content of the file.
    content: String,
}
