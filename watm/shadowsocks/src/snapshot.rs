//! What one module hands over to the next.

use crate::datagram::Remembered;
use crate::salts::Salts;

/// What a snapshot begins with: the format, and its version. The salts of streams follow, those of
/// SIP004 first, and behind them what there is to say of datagrams, if there is anything.
const FORMAT: &[u8] = b"watm-shadowsocks 2\n";

/// A memory of what has come.
pub struct Snapshot {
    pub salts_2017: Salts,
    pub salts_2022: Salts,
    pub datagrams: Remembered,
}

impl Snapshot {
    /// The beginning of a snapshot, for streams.
    pub fn write(salts_2017: &Salts, salts_2022: &Salts) -> Vec<u8> {
        let mut bytes = FORMAT.to_vec();
        salts_2017.write(&mut bytes);
        salts_2022.write(&mut bytes);
        bytes
    }

    /// A whole one. `None`: another module's, or damaged.
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
