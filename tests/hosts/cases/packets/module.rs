//! Pings the system through a device.

use watm_host_kit::packets::{Checksum, PacketBatch, PacketDevice, PacketInfo, PartialChecksum};
use watm_host_kit::{
    Case, ConfigError, ErrorCode, MILLISECOND, StartOptions, Wakeup, case, check, done, refused,
    same,
};

struct Packets {
    device: PacketDevice,
}

/// Returns an echo request (RFC 792) from 10.111.0.2 to 10.111.0.1, in a packet of IPv4 (RFC 791).
fn ping() -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 32, 0, 1, 0, 0, 64, 1, 0, 0, 10, 111, 0, 2, 10, 111, 0, 1, // IPv4
        8, 0, 0, 0, 0x12, 0x34, 0, 1, b'w', b'a', b't', b'm', // ICMP
    ];
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum);
    let sum = checksum(&packet[20..]);
    packet[22..24].copy_from_slice(&sum);
    packet
}

/// Returns the checksum of the Internet (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

impl Packets {
    fn send(&self, packet: &[u8], len: usize, checksum: Checksum) -> Result<u32, ErrorCode> {
        self.device.send(&PacketBatch {
            payload: packet.to_vec(),
            packets: vec![PacketInfo {
                len: len as u32,
                checksum,
                segment_size: None,
            }],
        })
    }
}

impl Case for Packets {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let device = PacketDevice::open("tun", 1).map_err(refused)?;
        same(
            "the second open",
            &PacketDevice::open("tun", 2).err(),
            &Some(ErrorCode::InvalidState),
        );
        let case = Packets { device };
        let invalid = Err(ErrorCode::InvalidArgument);
        same(
            "a wrong length",
            &case.send(&ping(), 31, Checksum::Complete),
            &invalid,
        );
        let partial = Checksum::Partial(PartialChecksum {
            start: 20,
            offset: 2,
        });
        same(
            "an offload that is off",
            &case.send(&ping(), 32, partial),
            &invalid,
        );
        Ok(case)
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        if watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        match self.device.receive(64, 1 << 16) {
            Ok(batch) => {
                let mut rest = batch.payload.as_slice();
                for info in &batch.packets {
                    let (packet, tail) = rest.split_at(info.len as usize);
                    rest = tail;
                    // An echo reply; others are of the system, such as those of a new interface.
                    if packet[0] >> 4 == 4 && packet[9] == 1 && packet[20] == 0 {
                        same("the reply", &&packet[24..], &&ping()[24..]);
                        done();
                        return Wakeup::OnReady;
                    }
                }
                if !rest.is_empty() {
                    check(false, "the payload exceeds the lengths");
                }
            }
            Err(code) => check(false, &format!("receive: {code:?}")),
        }
        // The interface may not be up yet.
        let _ = self.send(&ping(), 32, Checksum::Complete);
        Wakeup::At(now + 50 * MILLISECOND)
    }
}

case!(Packets);
