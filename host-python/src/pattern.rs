//! Patterns of destinations, for the upstreams' configuration in Python.

use std::net::{IpAddr, SocketAddr};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_runtime::Network;
use watm_runtime::seal::ConnectPattern;

/// A pattern of destinations: `host`, `host:ports`, or that after `tcp://` or `udp://`; without a
/// network it matches both. `host` is a name, `*.name`, an address, a network, or `*`.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Pattern(Vec<ConnectPattern>);

#[pymethods]
impl Pattern {
    #[new]
    fn new(text: &str) -> PyResult<Pattern> {
        let invalid = |reason| PyValueError::new_err(format!("{text:?}: {reason}"));
        ConnectPattern::parse(text).map(Pattern).map_err(invalid)
    }

    /// Returns True if it matches this destination, a name or an address. `transport` is "tcp" or
    /// "udp".
    fn admits(&self, transport: &str, host: &str, port: u16) -> bool {
        let network = match transport {
            "udp" => Network::Udp,
            _ => Network::Tcp,
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let ip = bare.parse::<IpAddr>();
        self.0.iter().any(|pattern| match ip {
            Ok(ip) => pattern.admits_address(network, &SocketAddr::new(ip, port)),
            Err(_) => pattern.admits_name(network, host, port),
        })
    }
}
