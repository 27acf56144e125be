use std::error::Error;
use std::io;
use std::time::Duration;

use watm_seal::Digest;

/// Why a source gave no file: a [code](FetchError::code) for programs, and a line for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// A file or folder of this machine.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A folder with nothing in it that could be meant.
    #[error("{0}")]
    NoCandidate(String),
    /// The certificates that were given are none, or the system's cannot be read.
    #[error("certificates: {0}")]
    Certificates(String),
    /// No connection, no TLS, or one that broke.
    #[error("{0}")]
    Connection(String),
    /// Nothing came for too long, or all of it took too long.
    #[error("took too long: {0}")]
    TimedOut(String),
    /// Something else than the file.
    #[error("answered with status {status}; must be 200")]
    Status {
        /// Of HTTP.
        status: u16,
        /// How long the server asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// A redirection that is not followed.
    #[error("redirection: {0}")]
    Redirect(String),
    /// More than is looked at.
    #[error("sends more than {limit} bytes; must be {limit} at most")]
    TooLarge {
        /// The most there may be.
        limit: u64,
    },
    /// It would have to be unpacked first, into who knows how much.
    #[error("sends the content encoding {0:?}; must be sent as it is")]
    Encoded(String),
    /// A part that does not continue what is here.
    #[error("sends another part than asked for: {0}")]
    WrongRange(String),
    /// Other content than its own address promises.
    #[error("sends content with the digest sha256:{found}; must be {expected}")]
    WrongDigest {
        /// In the reference or in the manifest.
        expected: String,
        /// Of what was sent.
        found: Digest,
    },
    /// Something in the registry that is no WebAssembly module.
    #[error("no WebAssembly artifact: {0}")]
    Artifact(String),
    /// The registry wants to know who this is, and was not satisfied.
    #[error("not authorized: {0}")]
    Unauthorized(String),
}

impl FetchError {
    /// The same for ever, for programs.
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

    /// How long the server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            FetchError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the same request may well succeed in a moment.
    pub(crate) fn is_broken_connection(&self) -> bool {
        matches!(self, FetchError::Connection(_))
    }

    /// Whether what has come so far is the beginning of a good file, for all that is known.
    pub(crate) fn leaves_a_part(&self) -> bool {
        matches!(self, FetchError::Connection(_) | FetchError::TimedOut(_))
    }
}

impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> FetchError {
        let redirect = error.is_redirect();
        let timed_out = error.is_timeout();
        // The address is the source's, which is said anyway, and may have a password in it.
        let error = error.without_url();
        // The deepest cause says what happened; those above it repeat that something did.
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

/// What a stranger has written, for one line of a report.
pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let printable = |character: char| match character {
        ' '..='~' => character,
        _ => '?',
    };
    text.chars().take(LONGEST).map(printable).collect()
}
