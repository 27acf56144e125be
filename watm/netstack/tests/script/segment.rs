//! Segments of scripts: made from their fields, sound or not, and read from packets of the stack.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::checksum;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;
pub const ECE: u8 = 64;
pub const CWR: u8 = 128;

/// The flags by name.
pub const FLAGS: [(&str, u8); 8] = [
    ("FIN", FIN),
    ("SYN", SYN),
    ("RST", RST),
    ("PSH", PSH),
    ("ACK", ACK),
    ("URG", URG),
    ("ECE", ECE),
    ("CWR", CWR),
];

/// A segment with absolute numbers.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    pub flags: u8,
    pub sequence: u32,
    pub acknowledges: u32,
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
    pub payload: Vec<u8>,
    /// The ECN field of the IP header.
    pub ecn: u8,
}

/// The options of a segment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: bool,
    pub blocks: Vec<(u32, u32)>,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// Bytes behind all others, in packets to the stack.
    pub raw: Vec<u8>,
}

impl Options {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(mss) = self.mss {
            out.extend([2, 4]);
            out.extend(mss.to_be_bytes());
        }
        if let Some(scale) = self.scale {
            out.extend([1, 3, 3, scale]);
        }
        if self.sack_permitted {
            out.extend([1, 1, 4, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            out.extend([1, 1, 8, 10]);
            out.extend(value.to_be_bytes());
            out.extend(echo.to_be_bytes());
        }
        if !self.blocks.is_empty() {
            out.extend([1, 1, 5, 2 + 8 * self.blocks.len() as u8]);
            for (start, end) in &self.blocks {
                out.extend(start.to_be_bytes());
                out.extend(end.to_be_bytes());
            }
        }
        out.extend(&self.raw);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    /// Reads options strictly: the stack's own are sound.
    fn read(mut bytes: &[u8]) -> Result<Options, String> {
        let mut options = Options::default();
        while let [kind, rest @ ..] = bytes {
            if *kind == 0 {
                break;
            }
            if *kind == 1 {
                bytes = rest;
                continue;
            }
            let length = rest.first().map_or(0, |length| usize::from(*length));
            if length < 2 || length > bytes.len() {
                return Err(format!("option {kind} has length {length}"));
            }
            let (option, next) = bytes.split_at(length);
            options.take(option)?;
            bytes = next;
        }
        Ok(options)
    }

    fn take(&mut self, option: &[u8]) -> Result<(), String> {
        let long = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match *option {
            [2, 4, high, low] => self.mss = Some(u16::from_be_bytes([high, low])),
            [3, 3, scale] => self.scale = Some(scale),
            [4, 2] => self.sack_permitted = true,
            [5, _, ref blocks @ ..] if !blocks.is_empty() && blocks.len() % 8 == 0 => {
                let pair = |block: &[u8]| (long(block), long(&block[4..]));
                self.blocks = blocks.chunks(8).map(pair).collect();
            }
            [8, 10, ref both @ ..] => self.timestamps = Some((long(both), long(&both[4..]))),
            _ => return Err(format!("the option {option:?} is unknown or malformed")),
        }
        Ok(())
    }
}

/// The deliberate damage of a segment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Damage {
    pub checksum: bool,
    /// The data offset, in units of four bytes.
    pub offset: Option<u8>,
}

impl Segment {
    /// The packet between these ends.
    pub fn packet(&self, from: SocketAddr, to: SocketAddr, damage: Damage) -> Vec<u8> {
        let options = self.options.bytes();
        let length = 20 + options.len();
        let mut out = Vec::with_capacity(length + self.payload.len());
        out.extend(from.port().to_be_bytes());
        out.extend(to.port().to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledges.to_be_bytes());
        out.push(damage.offset.unwrap_or((length / 4) as u8) << 4);
        out.push(self.flags);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(&options);
        out.extend(&self.payload);
        let sum = !sum(from.ip(), to.ip(), &out) ^ u16::from(damage.checksum);
        out[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut packet = crate::support::packets::ip(from.ip(), to.ip(), 6, &out);
        set_ecn(&mut packet, self.ecn);
        packet
    }

    /// The content of a packet of the stack, and its ends. Errors: it is unsound.
    pub fn read(packet: &[u8]) -> Result<(SocketAddr, SocketAddr, Segment), String> {
        let (from, to, protocol, bytes) = crate::support::packets::read_ip(packet);
        if protocol != 6 {
            return Err(format!("a packet of protocol {protocol}"));
        }
        let offset = bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        if offset < 20 || offset > bytes.len() {
            return Err(format!("a data offset of {offset}"));
        }
        if sum(from, to, bytes) != 0xffff {
            return Err("a wrong checksum".into());
        }
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        let segment = Segment {
            flags: bytes[13],
            sequence: long(4),
            acknowledges: long(8),
            window: short(14),
            urgent: short(18),
            options: Options::read(&bytes[20..offset])?,
            payload: bytes[offset..].to_vec(),
            ecn: ecn(packet),
        };
        let (from, to) = (
            SocketAddr::new(from, short(0)),
            SocketAddr::new(to, short(2)),
        );
        Ok((from, to, segment))
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The sum over a segment and its pseudo header; all ones if the checksum is right.
fn sum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let length = segment.len() as u32;
    let header = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            checksum::pseudo_header_v4(&from, &to, 6.into(), length)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            checksum::pseudo_header_v6(&from, &to, 6.into(), length)
        }
        _ => panic!("the ends are of different families"),
    };
    checksum::combine(&[header, checksum::data(segment)])
}

fn ecn(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1] & 3,
        _ => packet[1] >> 4 & 3,
    }
}

/// Replaces the ECN field.
fn set_ecn(packet: &mut [u8], ecn: u8) {
    if packet[0] >> 4 == 6 {
        packet[1] = packet[1] & 0xcf | ecn << 4;
        return;
    }
    packet[1] = packet[1] & 0xfc | ecn;
    packet[10..12].fill(0);
    let sum = !checksum::data(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}
