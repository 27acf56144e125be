//! Options that dialers and relays share. Used throughout the crate.

use std::net::SocketAddr;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use watm_runtime::{Capture, Error, Keys, Module, Reach, RoleBuilder};
use watm_socks::Resolver;

use crate::error::runtime_error;
use crate::limits::Limits;
use crate::names::resolver;

/// The options of a dial for its module, a Python dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct DialOptions {
    config: Option<Vec<u8>>,
    allow: Vec<String>,
    keys: Vec<(String, PathBuf)>,
    limits: Limits,
    name: String,
    udp: Option<String>,
    dns: Option<Vec<String>>,
    pcap: Option<PathBuf>,
    pcap_size: Option<u64>,
    pcap_files: Option<usize>,
    key_log: Option<PathBuf>,
}

impl DialOptions {
    /// Checks the options for this module. Returns them with the resolver of names.
    pub(crate) fn read(self, module: &Module) -> PyResult<(Options, Resolver)> {
        let options = Options {
            config: self.config,
            allow: self.allow,
            limits: self
                .limits
                .over(watm_runtime::Limits::for_connections_of(module.info().kind)),
            name: self.name,
            udp: address("udp", self.udp.as_deref())?,
            keys: read_keys(&self.keys).map_err(runtime_error)?,
            pcap: self.pcap,
            pcap_size: self.pcap_size,
            pcap_files: self.pcap_files,
            key_log: self.key_log,
        };
        Ok((options, resolver(self.dns)?))
    }
}

/// The options that a module runs with.
#[derive(PartialEq)]
pub(crate) struct Options {
    pub(crate) config: Option<Vec<u8>>,
    pub(crate) allow: Vec<String>,
    pub(crate) limits: watm_runtime::Limits,
    pub(crate) name: String,
    /// The address of a component's UDP socket, if it is granted one.
    pub(crate) udp: Option<SocketAddr>,
    /// The keys that it may sign with.
    pub(crate) keys: Keys,
    /// The files for captures of its packets, and of its keys.
    pub(crate) pcap: Option<PathBuf>,
    /// The bytes of a packet file, and the number of files that are kept.
    pub(crate) pcap_size: Option<u64>,
    pub(crate) pcap_files: Option<usize>,
    pub(crate) key_log: Option<PathBuf>,
}

impl Options {
    pub(crate) fn apply<R>(&self, builder: RoleBuilder<R>) -> Result<RoleBuilder<R>, Error> {
        let reach = self
            .allow
            .iter()
            .try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))?;
        let (pcap, key_log) = (self.pcap.clone(), self.key_log.clone());
        let builder = builder
            .reach(reach)
            .limits(self.limits.clone())
            .keys(self.keys.clone())
            .capture(Capture::wanted(
                pcap,
                key_log,
                self.pcap_size,
                self.pcap_files,
            )?)
            .name(&self.name);
        Ok(match &self.config {
            Some(config) => builder.config(config.clone()),
            None => builder,
        })
    }
}

/// Parses an address with its port.
fn address(field: &str, text: Option<&str>) -> PyResult<Option<SocketAddr>> {
    text.map(str::parse).transpose().map_err(|_| {
        let text = text.unwrap_or_default();
        PyValueError::new_err(format!(
            "{field}: {text:?} is not an address and a port, such as 127.0.0.1:0 or [::]:0"
        ))
    })
}

/// Reads the private keys in these files, each with its name.
pub(crate) fn read_keys(keys: &[(String, PathBuf)]) -> Result<Keys, Error> {
    keys.iter()
        .try_fold(Keys::new(), |all, (name, path)| all.add_file(name, path))
}

/// Joins `host:port`, with an IPv6 address in brackets.
pub(crate) fn joined(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
