//! The device: packets from it and to it, counted, and captured if the user wants it. Used by
//! `transport`.

use watm_core::ErrorCode;
use watm_core::capture::{self, Capture, Direction, copy_packet};
use watm_core::packets::{Offloads, PacketBatch, PacketDevice, PacketInfo};
use watm_netstack::finish;

use crate::counters::Counters;

/// The most that one receive takes.
const RECEIVE_PACKETS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;

/// The bytes of outgoing packets from which on they are given to the device before the call ends.
const BATCH_BYTES: usize = 256 << 10;

/// The work that is left to the system if it does it: long segments pass in one piece.
const WANTED: Offloads = Offloads {
    checksum: true,
    tcp_segments: true,
    udp_segments: true,
};

/// A device, and the packets for it.
pub struct Device {
    device: Box<dyn PacketDevice>,
    offloads: Offloads,
    /// The name of the peer behind it.
    peer: &'static str,
    batch: PacketBatch,
    counters: Counters,
    /// The captures that the user enabled.
    capture: Option<Box<dyn Capture>>,
}

impl Device {
    pub fn new(mut device: Box<dyn PacketDevice>, peer: &'static str) -> Device {
        Device {
            offloads: device.set_offloads(WANTED),
            device,
            peer,
            batch: PacketBatch::default(),
            counters: Counters::default(),
            capture: capture::capture(),
        }
    }

    /// Asks again for the captures that the user enabled.
    pub fn renew_capture(&mut self) {
        self.capture = capture::capture();
    }

    pub fn mtu(&self) -> u32 {
        self.device.mtu()
    }

    /// Returns true if it takes TCP segments that stand for several, without their checksums.
    pub fn divides(&self) -> bool {
        self.offloads.checksum && self.offloads.tcp_segments
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Receives packets. None at all means that there are no more for now.
    pub fn receive(&mut self) -> Result<PacketBatch, ErrorCode> {
        let batch = self.device.receive(RECEIVE_PACKETS, RECEIVE_BYTES)?;
        for (info, packet) in batch.iter() {
            self.counters.packets_received += 1;
            self.counters.bytes_received += packet.len() as u64;
            self.copy(Direction::FromPeer, packet, info);
        }
        Ok(batch)
    }

    pub fn push(&mut self, packet: &[u8]) {
        self.push_unfinished(packet, &PacketInfo::default());
    }

    pub fn push_unfinished(&mut self, packet: &[u8], info: &PacketInfo) {
        if self.batch.payload.len() >= BATCH_BYTES {
            self.flush();
        }
        self.batch.push_unfinished(packet, *info);
    }

    /// Gives the packets to the device. Those without room are lost, as at any full queue.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let given = self.batch.packets.len();
        // After an error nothing can be sent. A device that is gone reports it on receive.
        let taken = self.device.send(&self.batch).map_or(0, |n| n as usize);
        for (info, packet) in self.batch.iter().take(taken) {
            self.counters.packets_sent += 1;
            self.counters.bytes_sent += packet.len() as u64;
            self.copy(Direction::ToPeer, packet, info);
        }
        self.counters.dropped_full += given.saturating_sub(taken) as u64;
        self.batch.clear();
    }

    /// Captures the packets of an entry.
    fn copy(&self, direction: Direction, packet: &[u8], info: &PacketInfo) {
        let Some(capture) = self.capture.as_deref() else {
            return;
        };
        finish(packet, info, |packet| {
            copy_packet(Some(capture), self.peer, direction, packet);
        });
    }
}
