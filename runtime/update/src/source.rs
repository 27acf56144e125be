//! Sources of modules, and the parser of their notation. Used by `fetch`, `publish`, `record` and
//! `updater`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use reqwest::Url;
use watm_seal::Digest;

use crate::reference::Reference;

/// A source of modules.
///
/// | written as | is |
/// |---|---|
/// | `folder/name.wasm`, `file:…` | a file, or if it is a folder, the newest acceptable module in it |
/// | `https://…`, `http://…` | a file on a web server |
/// | `oci://registry/repository:tag`, `oci://registry/repository@sha256:…` | a WebAssembly artifact in a registry |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source(pub(crate) Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Path(PathBuf),
    Http(Url),
    Oci(Reference),
}

/// An invalid source, with the fault and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("source {text:?}: {reason}")]
pub struct SourceError {
    text: String,
    reason: String,
}

impl Source {
    /// Creates the source of a local file or folder.
    pub fn path(path: impl Into<PathBuf>) -> Source {
        Source(Kind::Path(path.into()))
    }

    /// Parses a source, as [`FromStr`] does.
    pub fn parse(text: &str) -> Result<Source, SourceError> {
        text.parse()
    }

    /// Returns true if it is on this machine, so that checks every few seconds are cheap.
    pub fn is_local(&self) -> bool {
        matches!(self.0, Kind::Path(_))
    }

    /// Returns a digest that identifies the source. The text itself may contain a password, which
    /// is never written to disk.
    pub(crate) fn fingerprint(&self) -> String {
        let text = match &self.0 {
            Kind::Http(url) => url.to_string(),
            Kind::Path(_) | Kind::Oci(_) => self.to_string(),
        };
        Digest::of(text.as_bytes()).to_string()
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Source, SourceError> {
        let refuse = |text: &str, reason: String| SourceError {
            text: text.to_owned(),
            reason,
        };
        if let Some(reference) = text.strip_prefix("oci://") {
            return reference
                .parse()
                .map(|reference| Source(Kind::Oci(reference)))
                .map_err(|reason| refuse(text, reason));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let url = Url::parse(text).map_err(|error| refuse("http", error.to_string()))?;
            return Ok(Source(Kind::Http(url)));
        }
        if let Some(path) = text.strip_prefix("file:") {
            let path = match path.starts_with("//") {
                true => Url::parse(text)
                    .ok()
                    .and_then(|url| url.to_file_path().ok())
                    .ok_or_else(|| refuse(text, "must be file:///PATH or file:PATH".into()))?,
                false => path.into(),
            };
            return Ok(Source::path(path));
        }
        match text.split_once("://") {
            Some((scheme, _)) => Err(refuse(
                scheme,
                "unknown scheme; must be a path, file:, http:, https: or oci:".into(),
            )),
            None if text.is_empty() => Err(refuse(text, "must not be empty".into())),
            None => Ok(Source::path(text)),
        }
    }
}

/// Writes the source without the password that it may contain.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Path(path) => path.display().fmt(f),
            Kind::Http(url) => {
                let mut url = url.clone();
                // An error means that it has no host, and therefore no password either.
                if url.password().is_some() && url.set_password(Some("…")).is_err() {
                    return f.write_str("http:");
                }
                url.fmt(f)
            }
            Kind::Oci(reference) => write!(f, "oci://{}", reference),
        }
    }
}
