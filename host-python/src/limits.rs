//! Limits as Python objects, converted to the runtime's.

use std::time::Duration;

use pyo3::prelude::*;

/// An object with these attributes, `mitmproxy_watm.Limits`. None means the runtime's default.
#[derive(FromPyObject)]
pub struct Limits {
    memory_bytes: Option<usize>,
    cpu_per_call: Option<Duration>,
    flows: Option<usize>,
    accept_backlog: Option<usize>,
    stream_buffer_bytes: Option<usize>,
    datagram_queue: Option<usize>,
    record_bytes: Option<u64>,
    connect_timeout: Option<Duration>,
    handshake_timeout: Option<Duration>,
    handshakes: Option<usize>,
    descriptors: Option<usize>,
    close_grace: Option<Duration>,
}

impl Limits {
    /// Returns these limits, with missing ones from `defaults`.
    pub(crate) fn over(self, defaults: watm_runtime::Limits) -> watm_runtime::Limits {
        watm_runtime::Limits {
            memory_bytes: self.memory_bytes.unwrap_or(defaults.memory_bytes),
            cpu_per_call: self.cpu_per_call.unwrap_or(defaults.cpu_per_call),
            flows: self.flows.unwrap_or(defaults.flows),
            accept_backlog: self.accept_backlog.unwrap_or(defaults.accept_backlog),
            stream_buffer_bytes: self
                .stream_buffer_bytes
                .unwrap_or(defaults.stream_buffer_bytes),
            datagram_queue: self.datagram_queue.unwrap_or(defaults.datagram_queue),
            record_bytes: self.record_bytes.unwrap_or(defaults.record_bytes),
            connect_timeout: self.connect_timeout.unwrap_or(defaults.connect_timeout),
            handshake_timeout: self.handshake_timeout.unwrap_or(defaults.handshake_timeout),
            descriptors: self.descriptors.unwrap_or(defaults.descriptors),
            handshakes: self.handshakes.unwrap_or(defaults.handshakes),
            close_grace: self.close_grace.unwrap_or(defaults.close_grace),
            ..defaults
        }
    }
}
