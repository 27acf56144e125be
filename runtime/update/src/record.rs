//! The record beside a place, for asking a server only for new files. Used throughout the crate.

use serde_derive::{Deserialize, Serialize};

use crate::source::Source;

/// Validators of the last file, stored beside a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Record {
    /// The [`Source::fingerprint`] of the source that the record is about.
    pub(crate) source: String,
    /// The SHA-256 of the file taken last: in use, or kept aside.
    pub(crate) file_sha256: String,
    /// The server's validators of that file.
    pub(crate) file: Validators,
}

/// Validators by which a server tells versions of a file apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Validators {
    /// An ETag as it was sent, or the digest of a registry's manifest.
    pub(crate) tag: Option<String>,
    /// `Last-Modified` as it was sent.
    pub(crate) modified: Option<String>,
}

impl Record {
    /// The largest record, in bytes: two headers of at most [`Validators::MAX_BYTES`] each, as
    /// JSON.
    pub(crate) const MAX_BYTES: usize = 4 << 10;

    /// Creates the record of a source about which nothing is known.
    pub(crate) fn of(source: &Source) -> Record {
        Record {
            source: source.fingerprint(),
            ..Record::default()
        }
    }

    /// Returns this record if it is about that source, or else an empty one.
    pub(crate) fn about(self, source: &Source) -> Record {
        let empty = Record::of(source);
        match self.source == empty.source {
            true => self,
            false => empty,
        }
    }
}

impl Validators {
    /// The longest validator that is recorded, in bytes.
    pub(crate) const MAX_BYTES: usize = 512;

    /// Returns a validator for `If-Range`: a server that has another version by now sends it from
    /// its beginning. A weak tag may stand for several versions (RFC 9110, section 13.1.5).
    pub(crate) fn range_condition(&self) -> Option<&str> {
        let strong = self.tag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.modified.as_deref())
    }
}
