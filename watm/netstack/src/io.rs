//! The host and the sink, as one call of the stack uses them.

use watm_core::{FlowInfo, Host, Instant};

use crate::label::Labels;
use crate::table::Key;
use crate::{Origin, PacketSink};

/// The access to the outside during one call of the stack.
pub(crate) struct Io<'a> {
    pub host: &'a mut dyn Host,
    pub sink: &'a mut dyn PacketSink,
    pub now: Instant,
    pub labels: Labels,
}

impl<'a> Io<'a> {
    pub(crate) fn new(
        host: &'a mut dyn Host,
        sink: &'a mut dyn PacketSink,
        labels: Labels,
    ) -> Self {
        let now = host.now();
        Io {
            host,
            sink,
            now,
            labels,
        }
    }
}

/// The description of a flow for the application.
pub(crate) fn flow_info(origin: &Origin, key: &Key) -> FlowInfo {
    FlowInfo {
        source: key.source,
        destination: key.destination.into(),
        peer: Some(origin.name.to_string()),
        underlay: origin.underlay,
        attributes: Vec::new(),
    }
}
