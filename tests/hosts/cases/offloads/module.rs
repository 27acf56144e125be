//! Leaves the checksum of a SYN to the host, and reads the system's answer.

use watm_host_kit::packets::{
    Checksum, Offloads, PacketBatch, PacketDevice, PacketInfo, PartialChecksum,
};
use watm_host_kit::{
    Case, ConfigError, ErrorCode, MILLISECOND, StartOptions, Wakeup, case, check, done, refused,
    same,
};

/// The bytes of the header of IPv4 (RFC 791), and of those of IPv4 and TCP (RFC 9293).
const IP: usize = 20;
const HEADERS: usize = 40;
/// The offset of the checksum in a header of TCP.
const FIELD: usize = 16;

struct Device {
    device: PacketDevice,
    /// True if the host computes checksums.
    finishes: bool,
}

/// Returns a SYN from 10.111.0.2 to a port of 10.111.0.1 at which nobody listens, with the sum of its
/// pseudo-header in place of the checksum.
fn syn() -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0, 10, 111, 0, 2, 10, 111, 0, 1, // IPv4
        0x12, 0x34, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
    ];
    let header = !sum(&packet[..IP]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let mut pseudo = packet[12..IP].to_vec();
    pseudo.extend_from_slice(&[0, 6, 0, 20]);
    let pseudo = sum(&pseudo);
    packet[IP + FIELD..][..2].copy_from_slice(&pseudo.to_be_bytes());
    packet
}

/// Returns the sum of 16-bit words in ones' complement (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn partial(offset: usize) -> Checksum {
    Checksum::Partial(PartialChecksum {
        start: IP as u16,
        offset: offset as u16,
    })
}

impl Device {
    fn send(
        &self,
        packet: &[u8],
        checksum: Checksum,
        segment_size: Option<u16>,
    ) -> Result<u32, ErrorCode> {
        self.device.send(&PacketBatch {
            payload: packet.to_vec(),
            packets: vec![PacketInfo {
                len: packet.len() as u32,
                checksum,
                segment_size,
            }],
        })
    }

    /// Sends the SYN, unfinished if the host finishes it.
    fn connect(&self) {
        let mut packet = syn();
        let checksum = match self.finishes {
            true => partial(FIELD),
            false => {
                let finished = !sum(&packet[IP..]);
                packet[IP + FIELD..][..2].copy_from_slice(&finished.to_be_bytes());
                Checksum::Complete
            }
        };
        // The interface may not be up yet.
        let _ = self.send(&packet, checksum, None);
    }
}

impl Case for Device {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let device = PacketDevice::open("tun", 1).map_err(refused)?;
        let all = Offloads {
            checksum: true,
            tcp_segments: true,
            udp_segments: true,
        };
        let segments = device.set_offloads(Offloads {
            checksum: false,
            ..all
        });
        check(
            !(segments.tcp_segments || segments.udp_segments),
            "segments without partial checksums",
        );
        let had = device.set_offloads(all);
        let case = Device {
            device,
            finishes: had.checksum,
        };
        let invalid = Err(ErrorCode::InvalidArgument);
        same(
            "an offset outside the packet",
            &case.send(&syn(), partial(HEADERS - IP - 1), None),
            &invalid,
        );
        same(
            "segments of no bytes",
            &case.send(&syn(), partial(FIELD), Some(0)),
            &invalid,
        );
        same(
            "segments with a complete checksum",
            &case.send(&syn(), Checksum::Complete, Some(536)),
            &invalid,
        );
        case.device.set_offloads(Offloads {
            checksum: false,
            tcp_segments: false,
            udp_segments: false,
        });
        same(
            "an offload that is off again",
            &case.send(&syn(), partial(FIELD), None),
            &invalid,
        );
        case.device.set_offloads(all);
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
                    // A reset; other packets are of the system, such as those of a new interface.
                    if packet[0] >> 4 == 4 && packet[9] == 6 && packet[IP + 13] & 4 != 0 {
                        same("the number that it acknowledges", &packet[IP + 11], &10);
                        done();
                        return Wakeup::OnReady;
                    }
                }
            }
            Err(code) => check(false, &format!("receive: {code:?}")),
        }
        self.connect();
        Wakeup::At(now + 50 * MILLISECOND)
    }
}

case!(Device);
