//! Errors of sources, and the cleaning of texts that servers send. Used throughout the crate.

use std::error::Error;
use std::io;
use std::time::Duration;

use watm_seal::Digest;

/// The reason why a source gave no file: a [code](FetchError::code) for programs and a line for
/// people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// A local file or folder cannot be read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A folder contains no suitable module.
    #[error("{0}")]
    NoCandidate(String),
    /// The given certificates are invalid, or the system's cannot be read.
    #[error("certificates: {0}")]
    Certificates(String),
    /// No connection or no TLS, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The server was silent for too long, or the whole transfer took too long.
    #[error("timed out: {0}")]
    TimedOut(String),
    /// The server answered with an unexpected status.
    #[error("answered with status {status}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The time in `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// A redirection is refused.
    #[error("redirection: {0}")]
    Redirect(String),
    /// The file exceeds the limit on size.
    #[error("sends more than {limit} bytes; must be {limit} at most")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The body is compressed. Unpacking could produce any amount of data.
    #[error("sends the content encoding {0:?}; must be sent without encoding")]
    Encoded(String),
    /// A partial answer does not continue the bytes received so far.
    #[error("sends another range than requested: {0}")]
    WrongRange(String),
    /// The content does not match its digest.
    #[error("sends content with the digest sha256:{found}; must be {expected}")]
    WrongDigest {
        /// The digest in the reference or in the manifest.
        expected: String,
        /// The digest of the received bytes.
        found: Digest,
    },
    /// The registry's artifact is not a WebAssembly module.
    #[error("not a WebAssembly artifact: {0}")]
    Artifact(String),
    /// The registry requires authentication and did not accept the credentials.
    #[error("not authorized: {0}")]
    Unauthorized(String),
}

impl FetchError {
    /// Returns a stable code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            FetchError::File(_) => "file",
            FetchError::NoCandidate(_) => "no-candidate",
            FetchError::Certificates(_) => "certificates",
            FetchError::Connection(_) => "connection",
            FetchError::TimedOut(_) => "timed-out",
            FetchError::Status { .. } => "status",
            FetchError::Redirect(_) => "redirect",
            FetchError::TooLarge { .. } => "too-large",
            FetchError::Encoded(_) => "encoded",
            FetchError::WrongRange(_) => "wrong-range",
            FetchError::WrongDigest { .. } => "wrong-digest",
            FetchError::Artifact(_) => "artifact",
            FetchError::Unauthorized(_) => "unauthorized",
        }
    }

    /// Returns the time in the server's `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            FetchError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if the same request may succeed in a moment.
    pub(crate) fn is_broken_connection(&self) -> bool {
        matches!(self, FetchError::Connection(_))
    }

    /// Returns true if the bytes received so far may be the beginning of a good file.
    pub(crate) fn leaves_a_part(&self) -> bool {
        matches!(self, FetchError::Connection(_) | FetchError::TimedOut(_))
    }
}

impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> FetchError {
        let redirect = error.is_redirect();
        let timed_out = error.is_timeout();
        // Drops the address: reports name the source anyway, and the address may contain a
        // password.
        let error = error.without_url();
        // The deepest cause says what happened. Those above it repeat that something did.
        let mut cause: &dyn Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let reason = one_line(&cause.to_string());
        match (redirect, timed_out) {
            (true, _) => FetchError::Redirect(reason),
            (_, true) => FetchError::TimedOut("the server did not answer in time".to_owned()),
            _ => FetchError::Connection(reason),
        }
    }
}

/// Makes text from a server safe for one line of a report: printable ASCII, at most 300 characters.
pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let printable = |character: char| match character {
        ' '..='~' => character,
        _ => '?',
    };
    text.chars().take(LONGEST).map(printable).collect()
}
