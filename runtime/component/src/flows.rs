//! The import `flows`: flows that a module offers to the application through `hub`, and its
//! datagrams.

use wasmtime::component::Resource;

use super::bindings::watm::transport::{flows, types};
use super::convert::check_destination;
use super::sockets::ByteStream;
use super::{Failure, HostObject, State};
use crate::recording::{Digest, import};
use crate::{ErrorCode, FlowInfo, Network};
use watm_net::flow::{Flow, GuestDatagrams, charge, datagram_pair, stream_pair};
use watm_net::quota::Permit;

/// The most bytes of the names that come with a flow (the peer, attributes), all together. They are
/// kept for as long as the flow; a TLS server name has 255 at most.
const MAX_INFO_BYTES: usize = 16 << 10;

impl HostObject for GuestDatagrams {
    /// Returns 0: the flow is charged separately.
    fn bytes(&self) -> usize {
        0
    }
}

impl State {
    /// Reserves a place for one more flow, or returns why it may not be offered.
    fn admit(&self, network: Network, info: &FlowInfo) -> Result<Permit, ErrorCode> {
        check_destination(&info.destination)?;
        if !self.hub.accepts(network, &info.destination) {
            return Err(ErrorCode::AccessDenied);
        }
        if info.kept_bytes() > MAX_INFO_BYTES {
            return Err(ErrorCode::InvalidArgument);
        }
        self.hub.check_backlog()?;
        self.flow_permit()
            .ok_or_else(|| self.hub.refuse_for_flows())
    }

    fn offer_stream(&mut self, info: FlowInfo, token: u64) -> Result<u32, Failure> {
        let permit = self.admit(Network::Tcp, &info)?;
        let charge = charge(
            Network::Tcp,
            &info,
            &self.hub.limits,
            &self.hub.counters.account,
        )?;
        let token = self.token(token)?;
        let (guest, flow) = stream_pair(info, token, &self.hub.limits, permit, charge);
        let handle = self.keep(ByteStream::Flow(guest))?;
        self.wakers
            .add(self.hub.offer(self.generation, Flow::Stream(flow)));
        Ok(handle.rep())
    }

    fn offer_datagrams(&mut self, info: FlowInfo, token: u64) -> Result<u32, Failure> {
        let permit = self.admit(Network::Udp, &info)?;
        let charge = charge(
            Network::Udp,
            &info,
            &self.hub.limits,
            &self.hub.counters.account,
        )?;
        let (guest, flow) = datagram_pair(
            info,
            self.token(token)?,
            &self.hub.limits,
            permit,
            self.hub.counters.clone(),
            self.failed.clone(),
            charge,
        );
        let handle = self.keep(guest)?;
        self.wakers
            .add(self.hub.offer(self.generation, Flow::Datagrams(flow)));
        Ok(handle.rep())
    }
}

impl flows::Host for State {
    fn accepts(
        &mut self,
        kind: flows::Kind,
        destination: types::Destination,
    ) -> wasmtime::Result<bool> {
        self.turn(import::Accepts, || (&kind, &destination))
            .take(self, |state| {
                let network = match kind {
                    flows::Kind::Bytes => Network::Tcp,
                    flows::Kind::Datagrams => Network::Udp,
                };
                Ok(state.hub.accepts(network, &destination.clone().into()))
            })
            .map_err(Failure::into_trap)
    }

    fn open_stream(
        &mut self,
        info: flows::FlowInfo,
        token: u64,
    ) -> Result<Resource<ByteStream>, Failure> {
        self.turn(import::OpenStream, || (&info, token))
            .take(self, |state| state.offer_stream(info.into(), token))
            .map(Resource::new_own)
    }

    fn open_datagrams(
        &mut self,
        info: flows::FlowInfo,
        token: u64,
    ) -> Result<Resource<GuestDatagrams>, Failure> {
        self.turn(import::OpenDatagrams, || (&info, token))
            .take(self, |state| state.offer_datagrams(info.into(), token))
            .map(Resource::new_own)
    }
}

impl flows::HostDatagramFlow for State {
    fn receive(
        &mut self,
        flow: Resource<GuestDatagrams>,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<flows::Datagrams>, Failure> {
        self.turn(import::DatagramFlowReceive, || {
            (flow.rep(), max_datagrams, max_bytes)
        })
        .take(self, |state| {
            let received = state.table.get(&flow)?.receive(
                max_datagrams as usize,
                max_bytes as usize,
                &mut state.wakers,
            );
            state.moved |= received
                .as_ref()
                .is_some_and(|(_, lengths)| !lengths.is_empty());
            Ok(received.map(|(payload, lengths)| flows::Datagrams { payload, lengths }))
        })
    }

    fn send(
        &mut self,
        flow: Resource<GuestDatagrams>,
        datagrams: flows::Datagrams,
    ) -> Result<u32, Failure> {
        self.turn(import::DatagramFlowSend, || {
            (
                flow.rep(),
                Digest::of(&datagrams.payload),
                &datagrams.lengths,
            )
        })
        .take(self, |state| {
            let accepted = state.table.get(&flow)?.send(
                &datagrams.payload,
                &datagrams.lengths,
                &mut state.wakers,
            )?;
            state.moved |= accepted > 0;
            Ok(u32::try_from(accepted).unwrap_or(u32::MAX))
        })
    }

    fn set_longest(&mut self, flow: Resource<GuestDatagrams>, bytes: u32) -> wasmtime::Result<()> {
        self.turn(import::DatagramFlowSetLongest, || (flow.rep(), bytes))
            .take(self, |state| {
                state.table.get(&flow)?.set_longest(bytes as usize);
                Ok(())
            })
            .map_err(Failure::into_trap)
    }

    fn drop(&mut self, flow: Resource<GuestDatagrams>) -> wasmtime::Result<()> {
        self.turn(import::DatagramFlowDrop, || (flow.rep(),))
            .take(self, |state| {
                state.release(flow)?;
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}
