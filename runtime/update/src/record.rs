use serde_derive::{Deserialize, Serialize};

use crate::source::Source;

/// What is remembered beside a place, to ask a server for what is new only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Record {
    /// [`Source::fingerprint`] of the source that all of this is about.
    pub(crate) source: String,
    /// Of the file that was taken last: in use, or kept aside.
    pub(crate) file_sha256: String,
    /// What the server said of it.
    pub(crate) file: Validators,
}

/// By what a server tells one version of a file from another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Validators {
    /// An ETag as it was sent, or the digest of what a registry has.
    pub(crate) tag: Option<String>,
    /// `Last-Modified` as it was sent.
    pub(crate) modified: Option<String>,
}

impl Record {
    /// Two headers, none of which is longer than [`Validators::MAX_BYTES`], as JSON.
    pub(crate) const MAX_BYTES: usize = 4 << 10;

    /// For a source of which nothing is known yet.
    pub(crate) fn of(source: &Source) -> Record {
        Record {
            source: source.fingerprint(),
            ..Record::default()
        }
    }

    /// This if it is about that source, or one that knows nothing.
    pub(crate) fn about(self, source: &Source) -> Record {
        let empty = Record::of(source);
        match self.source == empty.source {
            true => self,
            false => empty,
        }
    }
}

impl Validators {
    /// The longest that is remembered.
    pub(crate) const MAX_BYTES: usize = 512;

    /// What `If-Range` may carry: a server that has another version now sends it from its
    /// beginning. A weak tag may stand for several versions (RFC 9110, section 13.1.5).
    pub(crate) fn range_condition(&self) -> Option<&str> {
        let strong = self.tag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.modified.as_deref())
    }
}
