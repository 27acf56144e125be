use wasmtime::component::Resource;

use super::bindings::watm::transport::flows;
use super::sockets::ByteStream;
use super::{Failure, State};
use crate::flow::{Flow, FlowPermit, GuestDatagrams, datagram_pair, stream_pair};
use crate::{ErrorCode, FlowInfo};

/// Names that come with a flow (the peer, attributes) in bytes, all together. They are kept
/// for as long as the flow; a TLS server name has 255 at most.
const MAX_INFO_BYTES: usize = 16 << 10;

impl State {
    /// Whether one more flow may be offered.
    fn admit(&self, info: &FlowInfo) -> Result<FlowPermit, ErrorCode> {
        let names = info.attributes.iter().map(|(k, v)| k.len() + v.len() + 48);
        let bytes = names.sum::<usize>() + info.peer.as_ref().map_or(0, String::len);
        if bytes > MAX_INFO_BYTES {
            return Err(ErrorCode::InvalidArgument);
        }
        self.hub.check_backlog()?;
        self.hub.flows.permit().ok_or_else(|| {
            self.hub.counters.flows_refused_limit.add(1);
            ErrorCode::LimitReached
        })
    }
}

impl flows::Host for State {
    fn open_stream(
        &mut self,
        info: flows::FlowInfo,
        token: u64,
    ) -> Result<Resource<ByteStream>, Failure> {
        let info = FlowInfo::from(info);
        let permit = self.admit(&info)?;
        let token = self.token(token);
        let (guest, flow) = stream_pair(info, token, &self.hub.limits, permit);
        let handle = self.table.push(ByteStream::Flow(guest))?;
        self.wakers.add(self.hub.offer(Flow::Stream(flow)));
        Ok(handle)
    }

    fn open_datagrams(
        &mut self,
        info: flows::FlowInfo,
        token: u64,
    ) -> Result<Resource<GuestDatagrams>, Failure> {
        let info = FlowInfo::from(info);
        let permit = self.admit(&info)?;
        let (guest, flow) = datagram_pair(
            info,
            self.token(token),
            &self.hub.limits,
            permit,
            self.hub.counters.clone(),
            self.failed.clone(),
        );
        let handle = self.table.push(guest)?;
        self.wakers.add(self.hub.offer(Flow::Datagrams(flow)));
        Ok(handle)
    }
}

impl flows::HostDatagramFlow for State {
    fn receive(
        &mut self,
        flow: Resource<GuestDatagrams>,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<flows::Datagrams>, Failure> {
        let received = self.table.get(&flow)?.receive(
            max_datagrams as usize,
            max_bytes as usize,
            &mut self.wakers,
        );
        Ok(received.map(|(payload, lengths)| flows::Datagrams { payload, lengths }))
    }

    fn send(
        &mut self,
        flow: Resource<GuestDatagrams>,
        datagrams: flows::Datagrams,
    ) -> Result<u32, Failure> {
        let accepted = self.table.get(&flow)?.send(
            &datagrams.payload,
            &datagrams.lengths,
            &mut self.wakers,
        )?;
        Ok(u32::try_from(accepted).unwrap_or(u32::MAX))
    }

    fn drop(&mut self, flow: Resource<GuestDatagrams>) -> wasmtime::Result<()> {
        self.table.delete(flow)?;
        Ok(())
    }
}
