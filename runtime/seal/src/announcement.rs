//! The content of a freshness note. `freshness` signs and verifies it, and `state` remembers it.

use crate::bytes::{Reader, Writer, malformed};
use crate::manifest::{read_name, write_name};
use crate::{Digest, Name, Refused, Release};

const FORMAT: u8 = 1;

/// The content of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The [id](crate::Root::id) of the root that it is signed under.
    pub root: Digest,
    /// The name of the module.
    pub name: Name,
    /// The newest release.
    pub release: Release,
    /// The time of the statement, in seconds since 1970.
    pub time: u64,
}

impl Announcement {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(FORMAT).bytes(&self.root.0);
        write_name(&mut writer, &self.name);
        self.release.write(&mut writer);
        writer.u64(self.time);
        writer.finish()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Announcement, Refused> {
        let mut reader = Reader::new(bytes);
        match reader.u8("note format")? {
            FORMAT => {}
            other => {
                let reason = format!("{other}; this host knows {FORMAT}");
                return Err(malformed("note format", reason));
            }
        }
        let announcement = Announcement {
            root: Digest(reader.array("root")?),
            name: read_name(&mut reader, "name")?,
            release: Release::read(&mut reader, "release")?,
            time: reader.u64("time")?,
        };
        reader.end("freshness note")?;
        Ok(announcement)
    }
}
