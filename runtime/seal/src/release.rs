//! Release numbers, by which hosts recognize newer modules and rollbacks.

use std::fmt;
use std::str::FromStr;

use crate::Refused;
use crate::bytes::{Reader, Writer, malformed};

/// The number that decides which of two modules of a name is newer: by epoch, then by sequence.
/// Written `2.17`.
///
/// Release keys count the sequence up. Only the root raises the epoch, which recovers from a stolen
/// key that has used the highest sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The epoch, at most the root's.
    pub epoch: u32,
    /// The number within the epoch.
    pub sequence: u64,
}

impl Release {
    pub(crate) fn read(reader: &mut Reader<'_>, field: &str) -> Result<Release, Refused> {
        Ok(Release {
            epoch: reader.u32(field)?,
            sequence: reader.u64(field)?,
        })
    }

    pub(crate) fn write(self, writer: &mut Writer) {
        writer.u32(self.epoch).u64(self.sequence);
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

impl FromStr for Release {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Release, Refused> {
        let parsed = text.split_once('.').and_then(|(epoch, sequence)| {
            Some(Release {
                epoch: epoch.parse().ok()?,
                sequence: sequence.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| {
            malformed(
                "release",
                format!("{text:?}; must be EPOCH.SEQUENCE, such as 1.42"),
            )
        })
    }
}
