//! Blocks of pcapng (draft-ietf-opsawg-pcapng), as far as IP packets need them. Called by
//! `capture`.
//!
//! Written here, because the crate for pcapng has had only release candidates since it supports
//! nanoseconds.

use watm_types::cut;

/// The longest name of a server in a comment, in bytes.
const LONGEST_SERVER: usize = 512;

/// The link type of bare IP packets.
const LINKTYPE_RAW: u16 = 101;

/// The time resolution: 10 to the power of minus nine seconds.
const NANOSECONDS: u8 = 9;

/// The numbers of options, which depend on the block that they are in.
const END: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;

/// The type of secrets in the NSS key log format (section 4.7 of the draft): "TLSK".
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// An upper bound of the bytes that an interface and a packet need besides the name and the packet,
/// with the name of a server.
pub(super) const OVERHEAD: usize = 1024;

/// The direction of a packet.
pub(super) enum Way {
    In,
    Out,
}

/// Writes the head of a file.
pub(super) fn section(out: &mut Vec<u8>) {
    block(out, 0x0a0d_0d0a, |out| {
        out.extend(0x1a2b_3c4d_u32.to_le_bytes());
        out.extend([1_u16, 0].map(u16::to_le_bytes).concat());
        // The length of the section is unknown.
        out.extend(u64::MAX.to_le_bytes());
        let program = concat!("watm ", env!("CARGO_PKG_VERSION"));
        option(out, USER_APPLICATION, program.as_bytes());
        option(out, END, &[]);
    });
}

/// Writes the interface of a peer of this server. Interfaces are numbered in the order of the file.
pub(super) fn interface(out: &mut Vec<u8>, name: &str, server: &str) {
    block(out, 1, |out| {
        out.extend([LINKTYPE_RAW, 0].map(u16::to_le_bytes).concat());
        // Packets are not truncated.
        out.extend(0_u32.to_le_bytes());
        let server = cut(server, LONGEST_SERVER);
        option(out, COMMENT, format!("peer {name} of {server}").as_bytes());
        option(out, INTERFACE_NAME, name.as_bytes());
        option(out, TIME_RESOLUTION, &[NANOSECONDS]);
        option(out, END, &[]);
    });
}

/// Writes lines of TLS secrets, for the packets after them.
pub(super) fn secrets(out: &mut Vec<u8>, lines: &str) {
    block(out, 10, |out| {
        out.extend(TLS_KEY_LOG.to_le_bytes());
        out.extend((lines.len() as u32).to_le_bytes());
        out.extend(lines.as_bytes());
        pad(out);
    });
}

/// Writes a packet at `time`, in nanoseconds since 1970, of which the file gets `length` bytes at
/// most.
pub(super) fn packet(
    out: &mut Vec<u8>,
    interface: u32,
    time: u64,
    way: &Way,
    packet: &[u8],
    length: usize,
) {
    let kept = &packet[..packet.len().min(length)];
    block(out, 6, |out| {
        out.extend(interface.to_le_bytes());
        out.extend(((time >> 32) as u32).to_le_bytes());
        out.extend((time as u32).to_le_bytes());
        // Both are lengths in a module's memory, of 32 bits.
        out.extend((kept.len() as u32).to_le_bytes());
        out.extend((packet.len() as u32).to_le_bytes());
        out.extend(kept);
        pad(out);
        let flags: u32 = match way {
            Way::In => 1,
            Way::Out => 2,
        };
        option(out, FLAGS, &flags.to_le_bytes());
        option(out, END, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() - begin + 4) as u32).to_le_bytes();
    out.extend(length);
    out[begin + 4..begin + 8].copy_from_slice(&length);
}

/// Writes an option of at most 64 KiB; the names of programs and peers are shorter.
fn option(out: &mut Vec<u8>, number: u16, value: &[u8]) {
    out.extend(number.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend(value);
    pad(out);
}

/// Pads to the next 32 bits, at which every block begins.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_length_at_both_ends_and_are_aligned() {
        let mut file = Vec::new();
        section(&mut file);
        interface(&mut file, "peer one", "test");
        secrets(&mut file, "CLIENT_RANDOM 00 00\n");
        packet(
            &mut file,
            0,
            0x0102_0304_0506_0708,
            &Way::Out,
            &[0x45; 29],
            21,
        );
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let length = word(at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 10, 6]);
        let last = file.len() - word(file.len() - 4) as usize;
        let fields: Vec<u32> = (0..5).map(|n| word(last + 8 + 4 * n)).collect();
        assert_eq!(fields, [0, 0x0102_0304, 0x0506_0708, 21, 29]);
    }
}
