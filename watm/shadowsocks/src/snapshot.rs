//! The state that one module hands over to the next. Used by `stream` and `transport`.

use crate::datagram::Remembered;
use crate::salts::Salts;

/// The beginning of a snapshot: the format and its version. The salts of streams follow, those of
/// SIP004 first, and then the memory of datagrams, if there is any.
const FORMAT: &[u8] = b"watm-shadowsocks 2\n";

/// The memory against replays.
pub struct Snapshot {
    pub salts_2017: Salts,
    pub salts_2022: Salts,
    pub datagrams: Remembered,
}

impl Snapshot {
    /// Encodes the beginning of a snapshot, for streams.
    pub fn write(salts_2017: &Salts, salts_2022: &Salts) -> Vec<u8> {
        let mut bytes = FORMAT.to_vec();
        salts_2017.write(&mut bytes);
        salts_2022.write(&mut bytes);
        bytes
    }

    /// Parses a whole snapshot. `None` if it is another module's, or damaged.
    pub fn read(bytes: &[u8]) -> Option<Snapshot> {
        let (mut salts_2017, mut salts_2022) = (Salts::new(false), Salts::new(true));
        let rest = salts_2017.follow(bytes.strip_prefix(FORMAT)?)?;
        let rest = salts_2022.follow(rest)?;
        let datagrams = match rest {
            [] => Remembered::default(),
            rest => Remembered::read(rest)?,
        };
        Some(Snapshot {
            salts_2017,
            salts_2022,
            datagrams,
        })
    }
}
