//! The header of relayed datagrams (RFC 1928, section 7).

use crate::Address;

/// The bytes before the address: two that are reserved, and the number of a fragment.
const FIXED: usize = 3;

/// The reason why a datagram is not relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is a fragment, which relays need not support.
    Fragment,
    /// It has no whole header.
    Malformed,
}

/// Splits a datagram into its address and its payload. The address is not complete without a port.
pub fn split(datagram: &[u8]) -> Result<(Address<'_>, &[u8]), Unfit> {
    let (fixed, rest) = datagram.split_at_checked(FIXED).ok_or(Unfit::Malformed)?;
    if fixed[..2] != [0, 0] {
        return Err(Unfit::Malformed);
    }
    if fixed[2] != 0 {
        return Err(Unfit::Fragment);
    }
    match Address::parse(rest) {
        Ok((address, length)) if address.port != 0 => Ok((address, &rest[length..])),
        _ => Err(Unfit::Malformed),
    }
}

/// Returns the header of datagrams to or from this address. `None` if it has none; see [`Address::write`].
pub fn head(address: Address<'_>) -> Option<Vec<u8>> {
    let mut head = vec![0; FIXED];
    address.write(&mut head).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    #[test]
    fn a_header_is_split_as_it_is_made() {
        let address = Address {
            host: Host::Name(b"example.com"),
            port: 53,
        };
        let mut datagram = head(address).unwrap();
        let header = datagram.len();
        datagram.extend(b"payload");
        assert_eq!(split(&datagram), Ok((address, &b"payload"[..])));
        assert_eq!(split(&datagram[..header]), Ok((address, &b""[..])));
        for length in 0..header {
            assert_eq!(split(&datagram[..length]), Err(Unfit::Malformed));
        }
    }

    #[test]
    fn fragments_and_other_headers_are_unfit() {
        for (datagram, expected) in [
            (&[0, 0, 1, 1, 1, 2, 3, 4, 0, 5][..], Unfit::Fragment),
            (&[0, 0, 0x80, 1, 1, 2, 3, 4, 0, 5], Unfit::Fragment),
            (&[0, 1, 0, 1, 1, 2, 3, 4, 0, 5], Unfit::Malformed),
            (&[1, 0, 0, 1, 1, 2, 3, 4, 0, 5], Unfit::Malformed),
            (&[0, 0, 0, 2, 1, 2, 3, 4, 0, 5], Unfit::Malformed),
            (&[0, 0, 0, 1, 1, 2, 3, 4, 0, 0], Unfit::Malformed),
        ] {
            assert_eq!(split(datagram), Err(expected), "{datagram:?}");
        }
    }
}
