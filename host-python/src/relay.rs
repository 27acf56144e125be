//! Relays for event loops. The package's `connection.py` starts them.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::error::runtime_error;
use crate::limits::Limits;
use crate::module::Module;
use crate::options::{Options, joined};
use crate::signals::Signal;
use crate::thread;
use crate::wake::Wake;

/// A module that passes connections on. Closed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Relay {
    /// The running relay, until it is closed.
    relay: Mutex<Option<watm_runtime::Relay>>,
    address: SocketAddr,
    closed: Arc<AtomicBool>,
    ended: Arc<Signal>,
    handle: Handle,
}

/// Accepts connections on `host` and `port`. The module passes each on to `destination`.
#[pyfunction]
#[pyo3(signature = (module, host, port, destination, *, config, allow, limits, name, wake))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn relay(
    py: Python<'_>,
    module: &Module,
    host: &str,
    port: u16,
    destination: (String, u16),
    config: Option<Vec<u8>>,
    allow: Vec<String>,
    limits: Limits,
    name: &str,
    wake: Py<Wake>,
) -> PyResult<Relay> {
    let host: IpAddr = host
        .parse()
        .map_err(|_| PyValueError::new_err(format!("host: {host:?} is not an IP address")))?;
    let options = Options {
        config,
        allow,
        limits: limits.over(watm_runtime::Limits::for_connections_of(
            module.0.info().kind,
        )),
        name: name.to_owned(),
        udp: None,
        keys: watm_runtime::Keys::new(),
        pcap: None,
        pcap_size: None,
        pcap_files: None,
        key_log: None,
    };
    let handle = thread::handle()?;
    let target = joined(&destination.0, destination.1);
    let relay = py
        .detach(|| {
            let _within = handle.enter();
            let builder = options.apply(watm_runtime::Relay::builder(&module.0))?;
            builder.bind(SocketAddr::new(host, port), &target)
        })
        .map_err(runtime_error)?;
    Ok(Relay {
        address: relay.local_addr(),
        relay: Mutex::new(Some(relay)),
        closed: Arc::default(),
        ended: wake.get().signal(),
        handle,
    })
}

#[pymethods]
impl Relay {
    /// The key that wakes the loop after `closed` returned False.
    #[getter]
    fn closed_key(&self) -> u64 {
        self.ended.key
    }

    /// Returns the address of the socket.
    fn getsockname(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Returns the number of open connections.
    fn connections(&self) -> usize {
        let relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        relay.as_ref().map_or(0, watm_runtime::Relay::connections)
    }

    /// Frees the port and closes every connection, soon. Repeated calls have no effect.
    fn close(&self) {
        let mut relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(relay) = relay.take() {
            let (closed, ended) = (self.closed.clone(), self.ended.clone());
            self.handle.spawn(async move {
                relay.close().await;
                closed.store(true, Ordering::Release);
                ended.waker().wake();
            });
        }
    }

    /// Returns True once `close` has finished.
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
