//! What a module has used.

use pyo3::prelude::*;
use watm_runtime::UsedDestination;

/// What a module has used of what it may have.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Used {
    /// Outer sockets: "udp listen 127.0.0.1:51820".
    sockets: Vec<String>,
    /// Where it asked to connect to, the latest first; the 64 that it asked for last.
    destinations: Vec<Py<Destination>>,
    /// Whether it has had the host's ciphers run.
    host_crypto: bool,
    host_keys: bool,
    /// Memory of all its instances now.
    memory_bytes: u64,
    /// The most at any time.
    memory_peak_bytes: u64,
    /// Share of one core, in thousandths, over some ten seconds to a minute.
    cpu_permille: u32,
    /// Flows open now.
    flows: u32,
    /// Flows since the start.
    flows_opened: u64,
    /// Instances now.
    instances: u32,
}

/// Somewhere that a module asked to connect to.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Destination {
    /// The host as the module named it, and the port: "example.com:443", "udp://192.0.2.1:53".
    target: String,
    /// Connections that it got.
    connections: u64,
    /// Those that it did not get.
    failures: u64,
}

impl Used {
    pub(crate) fn new(py: Python<'_>, used: watm_runtime::Used) -> PyResult<Used> {
        let destinations = used.destinations.into_iter().map(|known| {
            let UsedDestination {
                target,
                connections,
                failures,
            } = known;
            Py::new(
                py,
                Destination {
                    target,
                    connections,
                    failures,
                },
            )
        });
        Ok(Used {
            sockets: used.sockets,
            destinations: destinations.collect::<PyResult<_>>()?,
            host_crypto: used.host_crypto,
            host_keys: used.host_keys,
            memory_bytes: used.memory_bytes,
            memory_peak_bytes: used.memory_peak_bytes,
            cpu_permille: used.cpu_permille,
            flows: used.flows,
            flows_opened: used.flows_opened,
            instances: used.instances,
        })
    }
}
