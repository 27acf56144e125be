//! Devices for packets, on the import `packets`. Transports that use them name `packets` in
//! `export!`.

use watm_core::packets::{Checksum, Offloads, PacketBatch, PacketDevice, PacketInfo, set_provider};
use watm_core::{ErrorCode, Token};

use crate::bindings::watm::transport::packets as wit;
use crate::convert::to_error;

/// Enables devices for this thread's transport. A module without this call does not import the
/// interface.
pub fn provide() {
    set_provider(Some(open));
}

fn open(label: &str, token: Token) -> Result<Box<dyn PacketDevice>, ErrorCode> {
    let device = wit::PacketDevice::open(label, token).map_err(to_error)?;
    Ok(Box::new(Device {
        device,
        descriptions: Vec::new(),
    }))
}

struct Device {
    device: wit::PacketDevice,
    /// The descriptions, kept for their capacity.
    descriptions: Vec<wit::PacketInfo>,
}

impl PacketDevice for Device {
    fn receive(&mut self, max_packets: u32, max_bytes: u32) -> Result<PacketBatch, ErrorCode> {
        let batch = self
            .device
            .receive(max_packets, max_bytes)
            .map_err(to_error)?;
        Ok(PacketBatch {
            payload: batch.payload,
            packets: batch.packets.into_iter().map(to_info).collect(),
        })
    }

    fn send(&mut self, batch: &PacketBatch) -> Result<u32, ErrorCode> {
        self.descriptions.clear();
        self.descriptions
            .extend(batch.packets.iter().map(from_info));
        self.device
            .send(wit::PacketBatchParam {
                payload: &batch.payload,
                packets: &self.descriptions,
            })
            .map_err(to_error)
    }

    fn set_offloads(&mut self, wanted: Offloads) -> Offloads {
        let had = self.device.set_offloads(wit::Offloads {
            checksum: wanted.checksum,
            tcp_segments: wanted.tcp_segments,
            udp_segments: wanted.udp_segments,
        });
        Offloads {
            checksum: had.checksum,
            tcp_segments: had.tcp_segments,
            udp_segments: had.udp_segments,
        }
    }

    fn mtu(&self) -> u32 {
        self.device.mtu()
    }
}

fn to_info(info: wit::PacketInfo) -> PacketInfo {
    PacketInfo {
        len: info.len,
        checksum: match info.checksum {
            wit::Checksum::Complete => Checksum::Complete,
            wit::Checksum::Verified => Checksum::Verified,
            wit::Checksum::Partial(wit::PartialChecksum { start, offset }) => {
                Checksum::Partial { start, offset }
            }
        },
        segment_size: info.segment_size,
    }
}

fn from_info(info: &PacketInfo) -> wit::PacketInfo {
    wit::PacketInfo {
        len: info.len,
        checksum: match info.checksum {
            Checksum::Complete => wit::Checksum::Complete,
            Checksum::Verified => wit::Checksum::Verified,
            Checksum::Partial { start, offset } => {
                wit::Checksum::Partial(wit::PartialChecksum { start, offset })
            }
        },
        segment_size: info.segment_size,
    }
}
