//! The Internet checksum (RFC 1071).
//!
//! smoltcp's implementation adds 16 bits at a time. Every payload byte passes here at both ends,
//! and in a module this costs more than anything else but the ciphers. Words of 32 bits in vectors
//! take half the time of words of 64 bits, which have to be divided first.

use std::net::IpAddr;

/// A sum that is not folded to 16 bits yet. Its words have the byte order of memory, which the
/// checksum does not depend on (RFC 1071 section 2).
#[derive(Debug, Clone, Copy, Default)]
struct Sum(u64);

/// The number of bytes added without a loop, so that the sum stays in vector registers. In a
/// module, each turn of a loop checks a clock, and these registers are not kept across the check.
const BLOCK: usize = 128;
/// The same for what is left.
const SMALL: usize = 32;

impl Sum {
    /// Add bytes that begin at an even offset. At most 4 GiB in all, so that nothing overflows.
    fn add(self, data: &[u8]) -> Sum {
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        let mut sum = self.0;
        for block in blocks {
            sum += of_words(block);
        }
        let (blocks, rest) = rest.as_chunks::<SMALL>();
        for block in blocks {
            sum += of_words(block);
        }
        let mut last = [0; SMALL];
        last[..rest.len()].copy_from_slice(rest);
        Sum(sum + of_words(&last))
    }

    fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::from_be(sum as u16)
    }
}

/// The sum of the words of 32 bits, which are added as 64 bits: two of them at a time.
fn of_words<const N: usize>(bytes: &[u8; N]) -> u64 {
    let (words, _) = bytes.as_chunks::<4>();
    let words = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)));
    words.sum()
}

/// The checksum of `message`, a TCP segment or a UDP datagram between these addresses, including
/// its own checksum field. The result is all ones if that field is right. If the field is zero, the
/// result is the inverse of the checksum to write into it.
pub(crate) fn transport(message: &[u8], source: IpAddr, destination: IpAddr, protocol: u8) -> u16 {
    header(message.len(), source, destination, protocol)
        .add(message)
        .fold()
}

/// The sum of the pseudo-header of a message of this length, without the message: a partial
/// checksum.
pub(crate) fn pseudo_header(
    length: usize,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
) -> u16 {
    header(length, source, destination, protocol).fold()
}

fn header(length: usize, source: IpAddr, destination: IpAddr, protocol: u8) -> Sum {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&(length as u32).to_be_bytes());
    header[7] = protocol;
    address(address(Sum::default(), source), destination).add(&header)
}

fn address(sum: Sum, address: IpAddr) -> Sum {
    match address {
        IpAddr::V4(address) => sum.add(&address.octets()),
        IpAddr::V6(address) => sum.add(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use smoltcp::wire::checksum::{combine, data, pseudo_header};

    use super::transport;

    #[test]
    fn it_is_the_sum_that_smoltcp_makes() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * i * 31 + i / 7) as u8).collect();
        let addresses: [(IpAddr, IpAddr); 2] = [
            ([10, 0, 0, 1].into(), [255, 254, 253, 252].into()),
            (
                [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
                [0xffff, 0xfffe, 7, 6, 5, 4, 3, 2].into(),
            ),
        ];
        for (source, destination) in addresses {
            for length in (0..70).chain([1379, 1380, 1381, 3000]) {
                let message = &bytes[..length];
                let header =
                    pseudo_header(&source.into(), &destination.into(), 6.into(), length as u32);
                assert_eq!(
                    transport(message, source, destination, 6),
                    combine(&[header, data(message)]),
                    "{length} bytes from {source}"
                );
            }
        }
    }

    #[test]
    fn carries_are_not_lost() {
        let ones = vec![0xff; 65_535];
        let zero = IpAddr::from([0, 0, 0, 0]);
        // In ones' complement, 32767 words of all ones are zero; the length and the last byte are
        // left.
        assert_eq!(transport(&ones, zero, zero, 0), 0xff00);
    }
}
