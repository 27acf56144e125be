//! Freshness notes: signed statements of the newest release of a module. `watm note` writes them,
//! and hosts check them to notice updates that are kept from them.

use crate::announcement::Announcement;
use crate::bytes::{Reader, Writer, malformed};
use crate::clock;
use crate::key::{Domain, PrivateKey, Signatures};
use crate::root::Purpose;
use crate::state::State;
use crate::verify::{check_delegations, check_epoch, check_root_expiry};
use crate::{PublicKey, Refused, Root};

/// The beginning of the note's file.
const MAGIC: &[u8] = b"watm/note-file/v1\0";
/// The largest note, in bytes. A name and the most signatures possible stay far below it.
const MAX_BYTES: usize = 4 << 10;

/// A freshness note: "the newest release of this name is that, as of this time". Its 200 bytes or
/// so fit through any channel. A host learns from it that somebody withholds updates, long before
/// its module expires.
///
/// A note causes a warning and nothing else, so its key may stay on a machine that signs one every
/// day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    announcement: Announcement,
    encoded: Vec<u8>,
    signatures: Signatures,
}

impl Note {
    /// Creates a note without signatures.
    pub fn new(announcement: Announcement) -> Note {
        Note {
            encoded: announcement.encode(),
            announcement,
            signatures: Signatures::default(),
        }
    }

    /// Adds a signature.
    pub fn sign(self, key: &PrivateKey) -> Result<Note, Refused> {
        let signature = key.sign(Domain::Freshness, &self.encoded);
        Ok(Note {
            signatures: self.signatures.with(signature)?,
            ..self
        })
    }

    /// Returns the content, verified or not.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// Returns the bytes of a note file.
    pub fn to_file(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC).record(&self.encoded);
        self.signatures.write(&mut writer);
        writer.finish()
    }

    /// Parses the bytes that [`to_file`](Note::to_file) returns, and checks each signature.
    pub fn from_file(bytes: &[u8]) -> Result<Note, Refused> {
        if bytes.len() > MAX_BYTES {
            return Err(Refused::TooLarge {
                bytes: bytes.len(),
                limit: MAX_BYTES,
            });
        }
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(malformed("freshness note", "has the wrong magic bytes"));
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

    /// Verifies that enough keys with a freshness delegation have signed it. Pass the result to
    /// [`State::announce`](crate::State::announce), which ignores a note older than one it knows.
    /// `now` is the clock, in seconds since 1970.
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
