//! The import `packets`: granted devices for IP packets of `net`.

use std::sync::Arc;
use std::task::{Context, Waker};

use wasmtime::component::Resource;

use super::bindings::watm::transport::packets;
use super::{Failure, HostObject, State};
use crate::ErrorCode;
use crate::recording::{Digest, import};
use watm_net::ports::Port;
use watm_net::sockets::{PacketPort, Protocol};

/// A granted device, taken by an instance.
pub struct PacketDevice {
    label: String,
    port: Arc<PacketPort>,
    waker: Waker,
}

impl HostObject for PacketDevice {
    fn bytes(&self) -> usize {
        self.label.len()
    }
}

impl packets::Host for State {}

impl packets::HostPacketDevice for State {
    fn open(&mut self, label: String, token: u64) -> Result<Resource<PacketDevice>, Failure> {
        self.turn(import::PacketDeviceOpen, || (&label, token))
            .take(self, |state| state.open_packet_device(&label, token))
            .map(Resource::new_own)
    }

    fn receive(
        &mut self,
        device: Resource<PacketDevice>,
        max_packets: u32,
        max_bytes: u32,
    ) -> Result<packets::PacketBatch, Failure> {
        self.turn(import::PacketDeviceReceive, || {
            (device.rep(), max_packets, max_bytes)
        })
        .take(self, |state| {
            let device = state.table.get(&device)?;
            let (payload, lengths) = match state.serves() {
                true => device.port.receive(
                    max_packets as usize,
                    max_bytes as usize,
                    &mut Context::from_waker(&device.waker),
                )?,
                false => (Vec::new(), Vec::new()),
            };
            state.moved |= !lengths.is_empty();
            Ok(packets::PacketBatch {
                payload,
                packets: lengths.into_iter().map(info_of).collect(),
            })
        })
    }

    fn send(
        &mut self,
        device: Resource<PacketDevice>,
        batch: packets::PacketBatch,
    ) -> Result<u32, Failure> {
        self.turn(import::PacketDeviceSend, || {
            (device.rep(), Digest::of(&batch.payload), &batch.packets)
        })
        .take(self, |state| {
            let device = state.table.get(&device)?;
            let total: u64 = batch.packets.iter().map(|info| u64::from(info.len)).sum();
            if total != batch.payload.len() as u64 || !batch.packets.iter().all(is_whole) {
                return Err(ErrorCode::InvalidArgument.into());
            }
            let lengths = batch.packets.iter().map(|info| info.len as usize);
            device.port.send(&batch.payload, lengths);
            state.moved |= !batch.packets.is_empty();
            // A list in a 32-bit memory has fewer than 4 G entries.
            Ok(batch.packets.len() as u32)
        })
    }

    fn set_offloads(
        &mut self,
        device: Resource<PacketDevice>,
        wanted: packets::Offloads,
    ) -> wasmtime::Result<packets::Offloads> {
        self.turn(import::PacketDeviceSetOffloads, || (device.rep(), &wanted))
            .take(self, |state| {
                state.table.get(&device)?;
                // The devices of this host have none.
                Ok(packets::Offloads {
                    checksum: false,
                    tcp_segments: false,
                    udp_segments: false,
                })
            })
            .map_err(Failure::into_trap)
    }

    fn mtu(&mut self, device: Resource<PacketDevice>) -> wasmtime::Result<u32> {
        self.turn(import::PacketDeviceMtu, || (device.rep(),))
            .take(self, |state| Ok(state.table.get(&device)?.port.mtu()))
            .map_err(Failure::into_trap)
    }

    fn drop(&mut self, device: Resource<PacketDevice>) -> wasmtime::Result<()> {
        self.turn(import::PacketDeviceDrop, || (device.rep(),))
            .take(self, |state| {
                let device = state.release(device)?;
                state.taken.remove(&(Protocol::Packets, device.label));
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}

impl State {
    fn open_packet_device(&mut self, label: &str, token: u64) -> Result<u32, Failure> {
        let Some(Port::Packets(port)) = self.port(Protocol::Packets, label) else {
            return Err(ErrorCode::AccessDenied.into());
        };
        let port = port.clone();
        let waker = self.take(Protocol::Packets, label, token)?;
        let label = label.to_owned();
        let device = PacketDevice { label, port, waker };
        Ok(self.keep(device)?.rep())
    }
}

fn info_of(len: u32) -> packets::PacketInfo {
    packets::PacketInfo {
        len,
        checksum: packets::Checksum::Complete,
        segment_size: None,
    }
}

/// Returns true if the packet needs no offload.
fn is_whole(info: &packets::PacketInfo) -> bool {
    let partial = matches!(info.checksum, packets::Checksum::Partial(_));
    !partial && info.segment_size.is_none()
}
