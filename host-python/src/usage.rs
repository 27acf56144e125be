//! Resources that a module has used, in the status of servers and dialers. Used by `server`.

use pyo3::prelude::*;
use watm_runtime::UsedDestination;

/// The resources that a module has used, of those it may use.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Used {
    /// Outer sockets: "udp listen 127.0.0.1:51820".
    sockets: Vec<String>,
    /// Destinations that it asked to connect to, the latest first; at most 64.
    destinations: Vec<Py<Destination>>,
    /// True if the host has run ciphers for it.
    host_crypto: bool,
    host_keys: bool,
    /// Memory of all its instances now, in bytes.
    memory_bytes: u64,
    /// The most memory at any time, in bytes.
    memory_peak_bytes: u64,
    /// CPU time as thousandths of one core, over some ten seconds to a minute.
    cpu_permille: u32,
    /// Flows open now.
    flows: u32,
    /// Flows since the start.
    flows_opened: u64,
    /// Instances now.
    instances: u32,
}

/// A destination that a module asked to connect to.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Destination {
    /// The host as the module named it, and the port: "example.com:443", "udp://192.0.2.1:53".
    target: String,
    /// The number of connections made.
    connections: u64,
    /// The number of failed attempts.
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
