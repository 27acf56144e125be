//! What dialers and relays have in common.

use std::net::SocketAddr;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_runtime::{Error, Keys, Limits, Reach, RoleBuilder};

/// What a module is used with.
#[derive(PartialEq)]
pub(crate) struct Options {
    pub(crate) config: Option<Vec<u8>>,
    pub(crate) allow: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) name: String,
    /// Where a component's socket of datagrams is bound, if it is granted one.
    pub(crate) udp: Option<SocketAddr>,
    /// That it may sign with.
    pub(crate) keys: Keys,
}

impl Options {
    pub(crate) fn apply<R>(&self, builder: RoleBuilder<R>) -> Result<RoleBuilder<R>, Error> {
        let reach = self
            .allow
            .iter()
            .try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))?;
        let builder = builder
            .reach(reach)
            .limits(self.limits.clone())
            .keys(self.keys.clone())
            .name(&self.name);
        Ok(match &self.config {
            Some(config) => builder.config(config.clone()),
            None => builder,
        })
    }
}

/// An address, as text with its port.
pub(crate) fn address(field: &str, text: Option<&str>) -> PyResult<Option<SocketAddr>> {
    text.map(str::parse).transpose().map_err(|_| {
        let text = text.unwrap_or_default();
        PyValueError::new_err(format!(
            "{field}: {text:?} is not an address and a port, such as 127.0.0.1:0 or [::]:0"
        ))
    })
}

/// The private keys in these files, each with its name.
pub(crate) fn read_keys(keys: &[(String, PathBuf)]) -> Result<Keys, Error> {
    keys.iter()
        .try_fold(Keys::new(), |all, (name, path)| all.add_file(name, path))
}

/// As `host:port`; an IPv6 address in brackets.
pub(crate) fn joined(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
