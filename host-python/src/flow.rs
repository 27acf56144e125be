//! Flows for event loops: every call returns at once. The package's streams wrap them. Used by
//! `dial` and `server`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use watm_runtime::{DatagramFlow, Destination, ErrorCode, FlowInfo, StreamFlow};

use crate::dialers::Opened;
use crate::error::{flow_error, os_error};
use crate::signals::Signal;
use crate::wake::Wake;

/// A connection, or the datagrams between one pair of addresses. Closed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Flow {
    kind: Kind,
    /// The addresses of a dialed connection.
    ends: Option<Ends>,
    ended: AtomicBool,
    read: Wait,
    drain: Wait,
}

enum Kind {
    Stream(StreamFlow),
    Datagrams(DatagramFlow),
}

/// Known addresses on the network's side of the module.
struct Ends {
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

struct Wait {
    signal: Arc<Signal>,
    waker: Waker,
}

impl Wait {
    fn new(wake: &Wake) -> Self {
        let signal = wake.signal();
        let waker = signal.waker();
        Wait { signal, waker }
    }

    fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

impl Flow {
    pub(crate) fn new(flow: watm_runtime::Flow, wake: &Wake) -> Self {
        let kind = match flow {
            watm_runtime::Flow::Stream(flow) => Kind::Stream(flow),
            watm_runtime::Flow::Datagrams(flow) => Kind::Datagrams(flow),
        };
        Flow::of(kind, None, wake)
    }

    pub(crate) fn dialed(opened: Opened, wake: &Wake) -> Self {
        match opened {
            Opened::Stream(connection) => {
                let ends = Ends {
                    local: connection.local_addr().ok(),
                    remote: connection.peer_addr().ok(),
                };
                Flow::of(Kind::Stream(connection.into_flow()), Some(ends), wake)
            }
            Opened::Datagrams(flow) => {
                let ends = Ends {
                    local: None,
                    remote: None,
                };
                Flow::of(Kind::Datagrams(flow), Some(ends), wake)
            }
        }
    }

    fn of(kind: Kind, ends: Option<Ends>, wake: &Wake) -> Self {
        Flow {
            kind,
            ends,
            ended: AtomicBool::new(false),
            read: Wait::new(wake),
            drain: Wait::new(wake),
        }
    }

    fn info(&self) -> &FlowInfo {
        match &self.kind {
            Kind::Stream(flow) => flow.info(),
            Kind::Datagrams(flow) => flow.info(),
        }
    }
}

#[pymethods]
impl Flow {
    /// The key that wakes the loop after `read` returned None.
    #[getter]
    fn read_key(&self) -> u64 {
        self.read.signal.key
    }

    /// The key that wakes the loop after `drained` returned False.
    #[getter]
    fn drain_key(&self) -> u64 {
        self.drain.signal.key
    }

    /// True for a flow of datagrams.
    #[getter]
    fn datagrams(&self) -> bool {
        matches!(self.kind, Kind::Datagrams(_))
    }

    /// True if the other end has finished and everything it sent has been read.
    #[getter]
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Reads up to `max` bytes, or one whole datagram. None means that nothing has arrived yet.
    /// Empty means that the flow has ended, or, unless `ended`, an empty datagram.
    fn read<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut context = self.read.context();
        let data = match &self.kind {
            Kind::Stream(flow) => match flow.poll_read_some(&mut context, max) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Ok(data)) => Some(data).filter(|data| max == 0 || !data.is_empty()),
                Poll::Ready(Err(error)) => return Err(flow_error(&error)),
            },
            Kind::Datagrams(flow) => match flow.poll_receive(&mut context) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Ok(data)) => data,
                Poll::Ready(Err(error)) => return Err(flow_error(&error)),
            },
        };
        if data.is_none() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Ok(Some(PyBytes::new(py, data.as_deref().unwrap_or_default())))
    }

    /// Queues bytes, or one datagram. Never waits: check `drained` before queueing more. A datagram
    /// that finds the queue full is dropped and counted.
    fn write(&self, data: &[u8]) -> PyResult<()> {
        let result = match &self.kind {
            Kind::Stream(flow) => flow.queue_write(data),
            Kind::Datagrams(flow) => flow.send(data).map(drop),
        };
        result.map_err(|error| flow_error(&error))
    }

    /// Returns True if there is room for more. An `OSError` says why the flow has failed.
    fn drained(&self) -> PyResult<bool> {
        let mut context = self.drain.context();
        let room = match &self.kind {
            Kind::Stream(flow) => flow.poll_drained(&mut context),
            Kind::Datagrams(flow) => flow.poll_writable(&mut context),
        };
        match room {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(error)) => Err(flow_error(&error)),
        }
    }

    /// Returns True once everything queued before `close` has been sent, or never will be. Wakes
    /// with `drain_key`.
    fn flushed(&self) -> bool {
        match &self.kind {
            Kind::Stream(flow) => flow.poll_flushed(&mut self.drain.context()).is_ready(),
            Kind::Datagrams(_) => true,
        }
    }

    /// Half-closes the flow after the queued bytes. Repeated calls have no effect.
    fn write_eof(&self) -> PyResult<()> {
        match &self.kind {
            Kind::Stream(flow) => flow.shutdown_write().map_err(|error| flow_error(&error)),
            Kind::Datagrams(_) => Err(os_error(
                "EOPNOTSUPP",
                "datagram flows cannot be half-closed",
            )),
        }
    }

    /// Closes the flow after the queued data has been delivered, and discards data that arrives.
    fn close(&self) {
        match &self.kind {
            Kind::Stream(flow) => flow.close(),
            Kind::Datagrams(flow) => flow.close(),
        }
    }

    /// Resets the flow at once. Queued data is lost.
    fn abort(&self) {
        match &self.kind {
            Kind::Stream(flow) => flow.abort(ErrorCode::ConnectionAborted),
            Kind::Datagrams(flow) => flow.close(),
        }
    }

    /// Returns a fact about the flow, under its name for asyncio's `get_extra_info`. `None` if it is
    /// unknown.
    fn extra_info<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let info = self.info();
        let destination = || match &info.destination {
            Destination::Address(address) => pair(address),
            Destination::Name(name, port) => (name.clone(), *port),
        };
        let address = match (name, &self.ends) {
            ("transport_protocol", _) => {
                let protocol = if self.datagrams() { "udp" } else { "tcp" };
                return object(py, protocol).map(Some);
            }
            ("peer", _) => return info.peer.as_ref().map(|peer| object(py, peer)).transpose(),
            ("attributes", _) => {
                let attributes = PyDict::new(py);
                for (name, value) in &info.attributes {
                    attributes.set_item(name, value)?;
                }
                return Ok(Some(attributes.into_any()));
            }
            ("peername", None) => Some(pair(&info.source)),
            ("peername", Some(ends)) => Some(ends.remote.as_ref().map_or_else(destination, pair)),
            ("sockname", None) => Some(destination()),
            ("sockname", Some(ends)) => ends.local.as_ref().map(pair),
            ("original_src", _) => info.underlay.as_ref().map(|(remote, _)| pair(remote)),
            ("original_dst", _) => info.underlay.as_ref().map(|(_, local)| pair(local)),
            _ => None,
        };
        address.map(|address| object(py, address)).transpose()
    }
}

/// Makes a Python object of a value.
fn object<'py>(py: Python<'py>, value: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    value.into_bound_py_any(py)
}

/// Formats an address as Python's `socket` does.
fn pair(address: &SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}
