use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::ErrorCode;

/// Why a call of this library failed, sorted by who can do something about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module is not one that this host runs.
    #[error("{module}: {reason}")]
    Module {
        /// The file or the name it was loaded under.
        module: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The module is not one that may be loaded here. With the code `unsealed`, programs add how
    /// their users allow modules without a seal.
    #[error("{module}: {reason}")]
    Untrusted {
        /// The file or the name it was to be loaded under.
        module: String,
        /// [`Refused::code`](watm_seal::Refused::code), or `no-root`: the same for ever, for
        /// programs.
        code: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// It may not have what it was to be given.
    #[error("{module}: {reason}")]
    NotGranted {
        /// The module's name.
        module: String,
        /// Which bound, and what it allows.
        reason: String,
    },
    /// What is remembered of modules cannot be read or written.
    #[error(transparent)]
    State(Box<watm_seal::state::StateError>),
    /// The module refused its configuration.
    #[error("{module}: configuration refused: {reason}")]
    Config {
        /// The module's name.
        module: String,
        /// In the module's words: the field, and why.
        reason: String,
    },
    /// The module answered a request with an error.
    #[error("{module}: {code}")]
    Refused {
        /// The module's name.
        module: String,
        /// Its answer.
        code: ErrorCode,
    },
    /// A file or directory cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A recording cannot be read.
    #[error("{path}: {reason}")]
    Recording {
        /// Which file.
        path: PathBuf,
        /// Where it is damaged, or what it is.
        reason: String,
    },
    /// A socket that the caller grants cannot be had.
    #[error("{protocol} {address} (label \"{label}\"): {reason}")]
    Grant {
        /// `udp` or `tcp`.
        protocol: &'static str,
        /// The address asked for.
        address: std::net::SocketAddr,
        /// The label it was to be granted under.
        label: String,
        /// The system's reason, and what would help.
        reason: String,
        /// The system's error.
        source: io::Error,
    },
    /// The module does not take the place of the one that serves, which goes on.
    #[error("{module}: not swapped in: {reason}")]
    Swap {
        /// The new module's name.
        module: String,
        /// What is in the way, or what happened.
        reason: String,
    },
    /// A connection that the module asked for cannot be had.
    #[error("{module}: {} ({target})", ErrorCode::from(source))]
    Connect {
        /// The module's name.
        module: String,
        /// Where to, as it was asked for.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// The module asked for a connection to where it may not go.
    #[error("{module}: not allowed to reach {target}; the pattern \"{target}\" would allow it")]
    Denied {
        /// The module's name.
        module: String,
        /// Where to, as it was asked for.
        target: String,
    },
    /// The module gave up before its connection was ready.
    #[error("{module}: {reason}")]
    Handshake {
        /// The module's name.
        module: String,
        /// Which of its functions, and what it answered.
        reason: String,
    },
    /// The module carries streams, and nothing else was asked of it: it is a WATER module, or a
    /// component of a transport that has no datagrams.
    #[error("{module}: carries streams, and no datagrams")]
    NoDatagrams {
        /// The module's name.
        module: String,
    },
    /// The options contradict each other or are out of range.
    #[error("{0}")]
    Options(String),
    /// The module trapped, or went over its memory or CPU limit.
    #[error("{module}: {reason}")]
    Trap {
        /// The module's name.
        module: String,
        /// What happened.
        reason: String,
    },
    /// The server did not answer in time; it is busy or the machine is.
    #[error("{module}: no answer within {} s", after.as_secs_f32())]
    Timeout {
        /// The module's name.
        module: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// More requests wait for the module than it answers.
    #[error("{module}: too many requests at once; try again")]
    Busy {
        /// The module's name.
        module: String,
    },
    /// The server is between two instances of its module, after a failure.
    #[error("{module}: restarting after a failure; try again")]
    Restarting {
        /// The module's name.
        module: String,
    },
    /// The server is closed.
    #[error("{module}: the server is closed")]
    Closed {
        /// The module's name.
        module: String,
    },
    /// The machine does not let the host do its work: no thread, no private directory.
    #[error("{0}")]
    System(String),
}
