//! The import `packets`: granted devices for IP packets of `net`.

use std::sync::Arc;
use std::task::{Context, Waker};

use wasmtime::component::Resource;

use super::bindings::watm::transport::packets;
use super::{Failure, HostObject, State};
use crate::ErrorCode;
use crate::recording::{Digest, import};
use watm_net::ports::Port;
use watm_net::sockets::{Checksum, Offloads, PacketInfo, PacketPort, Protocol};

/// A granted device, taken by an instance.
pub struct PacketDevice {
    label: String,
    port: Arc<PacketPort>,
    waker: Waker,
    /// The offloads that the module has set.
    offloads: Offloads,
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
            let (payload, packets) = match state.serves() {
                true => device.port.receive(
                    device.offloads,
                    max_packets as usize,
                    max_bytes as usize,
                    &mut Context::from_waker(&device.waker),
                )?,
                false => (Vec::new(), Vec::new()),
            };
            state.moved |= !packets.is_empty();
            Ok(packets::PacketBatch {
                payload,
                packets: packets.into_iter().map(to_wit).collect(),
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
            if !is_valid(&batch, device.offloads) {
                return Err(ErrorCode::InvalidArgument.into());
            }
            let packets = batch.packets.iter().map(from_wit);
            device.port.send(&batch.payload, packets);
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
                let device = state.table.get_mut(&device)?;
                let wanted = Offloads {
                    checksum: wanted.checksum,
                    tcp_segments: wanted.tcp_segments,
                    udp_segments: wanted.udp_segments,
                };
                device.offloads = wanted.and(device.port.offloads());
                let Offloads {
                    checksum,
                    tcp_segments,
                    udp_segments,
                } = device.offloads;
                Ok(packets::Offloads {
                    checksum,
                    tcp_segments,
                    udp_segments,
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
        let device = PacketDevice {
            label,
            port,
            waker,
            offloads: Offloads::default(),
        };
        Ok(self.keep(device)?.rep())
    }
}

/// Returns true if the lengths add up to the payload, and each entry is valid with these offloads.
fn is_valid(batch: &packets::PacketBatch, offloads: Offloads) -> bool {
    let mut rest = batch.payload.as_slice();
    let valid = batch.packets.iter().all(|info| {
        let Some((packet, tail)) = rest.split_at_checked(info.len as usize) else {
            return false;
        };
        rest = tail;
        from_wit(info).is_valid(packet, offloads)
    });
    valid && rest.is_empty()
}

fn to_wit(info: PacketInfo) -> packets::PacketInfo {
    packets::PacketInfo {
        len: info.len,
        checksum: match info.checksum {
            Checksum::Complete => packets::Checksum::Complete,
            Checksum::Verified => packets::Checksum::Verified,
            Checksum::Partial { start, offset } => {
                packets::Checksum::Partial(packets::PartialChecksum { start, offset })
            }
        },
        segment_size: info.segment_size,
    }
}

fn from_wit(info: &packets::PacketInfo) -> PacketInfo {
    PacketInfo {
        len: info.len,
        checksum: match info.checksum {
            packets::Checksum::Complete => Checksum::Complete,
            packets::Checksum::Verified => Checksum::Verified,
            packets::Checksum::Partial(packets::PartialChecksum { start, offset }) => {
                Checksum::Partial { start, offset }
            }
        },
        segment_size: info.segment_size,
    }
}
