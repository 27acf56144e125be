//! Who knows the addresses of names, as Python says it.

use std::net::{IpAddr, SocketAddr};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_socks::{Resolver, Servers};

/// Where servers of DNS are asked, unless a port is given.
const PORT: u16 = 53;

/// `None`: the module is told names; `["host"]`: this machine; else servers, asked through the module.
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
                    "dns: {text:?} must be the address of a server, or alone and \"host\""
                ))
            })
    });
    let servers = servers.collect::<PyResult<Vec<_>>>()?;
    match servers.is_empty() {
        true => Err(PyValueError::new_err("dns: names no server")),
        false => Ok(Resolver::Servers(Servers::new(servers))),
    }
}
