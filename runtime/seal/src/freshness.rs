use crate::bytes::{Reader, Writer, malformed};
use crate::clock;
use crate::key::{Domain, PrivateKey, Signatures};
use crate::manifest::{read_name, write_name};
use crate::root::Purpose;
use crate::state::State;
use crate::verify::{check_delegations, check_epoch, check_root_expiry};
use crate::{Digest, Name, PublicKey, Refused, Release, Root};

/// Before the note in its file.
const MAGIC: &[u8] = b"watm/note-file/v1\0";
const FORMAT: u8 = 1;
/// A name and as many signatures as there can be are far below this.
const MAX_BYTES: usize = 4 << 10;

/// "The newest release of this name is that, as of this time": some 200 bytes that any channel can
/// carry, by which a host learns that updates are kept from it long before its module expires.
///
/// Such a note can cause a warning and nothing else, so its key may live on a machine that signs
/// one every day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    announcement: Announcement,
    encoded: Vec<u8>,
    signatures: Signatures,
}

/// What a note says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The root it is under: [`Root::id`].
    pub root: Digest,
    /// Of the module.
    pub name: Name,
    /// The newest one.
    pub release: Release,
    /// When that was so, in seconds since 1970.
    pub time: u64,
}

impl Note {
    /// Nobody has signed it yet.
    pub fn new(announcement: Announcement) -> Note {
        Note {
            encoded: announcement.encode(),
            announcement,
            signatures: Signatures::default(),
        }
    }

    /// Signed by one more.
    pub fn sign(self, key: &PrivateKey) -> Result<Note, Refused> {
        let signature = key.sign(Domain::Freshness, &self.encoded);
        Ok(Note {
            signatures: self.signatures.with(signature)?,
            ..self
        })
    }

    /// What it says, true or not.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// As a file.
    pub fn to_file(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC).record(&self.encoded);
        self.signatures.write(&mut writer);
        writer.finish()
    }

    /// What [`to_file`](Note::to_file) wrote, after checking each signature.
    pub fn from_file(bytes: &[u8]) -> Result<Note, Refused> {
        if bytes.len() > MAX_BYTES {
            return Err(Refused::TooLarge {
                bytes: bytes.len(),
                limit: MAX_BYTES,
            });
        }
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(malformed("freshness note", "does not begin as one"));
        };
        let mut reader = Reader::new(rest);
        let encoded = reader.record("freshness note")?;
        let announcement = Announcement::parse(encoded)?;
        let signatures = Signatures::read(&mut reader, Domain::Freshness, encoded)?;
        reader.end("freshness note")?;
        Ok(Note {
            announcement,
            encoded: encoded.to_owned(),
            signatures,
        })
    }

    /// Whether those whose word it is have signed it. What follows is for
    /// [`State::announce`](crate::State::announce), which ignores a note that is older than what
    /// it knows. `now` is the clock, in seconds since 1970.
    pub fn verify(&self, root: &Root, state: &State, now: u64) -> Result<Announcement, Refused> {
        let root = state.newest_root(root)?;
        let found = self.announcement.root;
        if found != root.id() {
            let expected = root.id();
            return Err(Refused::UnknownRoot { found, expected });
        }
        let (time, _) = clock::judge(now, state.greatest_time());
        check_root_expiry(root.record(), time)?;
        let signers: Vec<PublicKey> = self.signatures.keys().collect();
        let name = &self.announcement.name;
        check_delegations(Purpose::Freshness, name, root.record(), &signers)?;
        check_epoch(name, self.announcement.release, root.record())?;
        Ok(self.announcement.clone())
    }
}

impl Announcement {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(FORMAT).bytes(&self.root.0);
        write_name(&mut writer, &self.name);
        self.release.write(&mut writer);
        writer.u64(self.time);
        writer.finish()
    }

    fn parse(bytes: &[u8]) -> Result<Announcement, Refused> {
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
