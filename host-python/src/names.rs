//! Resolvers as Python describes them: the option `dns`.

use std::net::{IpAddr, SocketAddr};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_socks::{Resolver, Servers};

/// The default port of DNS servers.
const PORT: u16 = 53;

/// Parses a resolver. `None` means that the module gets names, `["host"]` that this machine looks
/// them up, and a list of servers that they are asked through the module.
pub(crate) fn resolver(dns: Option<Vec<String>>) -> PyResult<Resolver> {
    let Some(dns) = dns else {
        return Ok(Resolver::Dialer);
    };
    if dns == ["host"] {
        return Ok(Resolver::Host);
    }
    let servers = dns.iter().map(|text| {
        let ip = || text.parse::<IpAddr>().ok();
        let server = text.parse().ok();
        server
            .or_else(|| Some(SocketAddr::new(ip()?, PORT)))
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "dns: {text:?} must be the address of a server, or \"host\" without any other"
                ))
            })
    });
    let servers = servers.collect::<PyResult<Vec<_>>>()?;
    match servers.is_empty() {
        true => Err(PyValueError::new_err("dns: empty; must name a server")),
        false => Ok(Resolver::Servers(Servers::new(servers))),
    }
}
