//! The errors of this library, which all of its public functions return.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::ErrorCode;

/// The reason why a call of this library failed, sorted by who can do something about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module cannot run on this host.
    #[error("{module}: {reason}")]
    Module {
        /// The file or the name it was loaded under.
        module: String,
        /// The fault, and the remedy.
        reason: String,
    },
    /// The module may not be loaded here. For the code `unsealed`, programs add how their users
    /// allow modules without a seal.
    #[error("{module}: {reason}")]
    Untrusted {
        /// The file or name of the module.
        module: String,
        /// A stable code for programs: the code of a refused seal, or `no-root`.
        code: &'static str,
        /// The fault, and the remedy.
        reason: String,
    },
    /// A resource is outside the module's grant.
    #[error("{module}: {reason}")]
    NotGranted {
        /// The module's name.
        module: String,
        /// The bound, and what it allows.
        reason: String,
    },
    /// The state, which records what is known of modules, cannot be read or written.
    #[error(transparent)]
    State(Box<dyn std::error::Error + Send + Sync>),
    /// The module refused its configuration.
    #[error("{module}: configuration refused: {reason}")]
    Config {
        /// The module's name.
        module: String,
        /// The field and the reason, in the module's words.
        reason: String,
    },
    /// The module answered a request with an error.
    #[error("{module}: {code}")]
    Refused {
        /// The module's name.
        module: String,
        /// The module's answer.
        code: ErrorCode,
    },
    /// A file or directory cannot be used.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A recording cannot be read.
    #[error("{path}: {reason}")]
    Recording {
        /// The file.
        path: PathBuf,
        /// The place of the damage, or the actual kind of the file.
        reason: String,
    },
    /// A socket that the caller grants cannot be bound.
    #[error("{protocol} {address} (label \"{label}\"): {reason}")]
    Grant {
        /// `udp` or `tcp`.
        protocol: &'static str,
        /// The requested address.
        address: std::net::SocketAddr,
        /// The label of the grant.
        label: String,
        /// The system's reason, and the remedy.
        reason: String,
        /// The system's error.
        source: io::Error,
    },
    /// The module does not replace the serving one, which continues.
    #[error("{module}: not swapped in: {reason}")]
    Swap {
        /// The new module's name.
        module: String,
        /// The obstacle, or the failure.
        reason: String,
    },
    /// A connection that the module asked for failed.
    #[error("{module}: {} ({target})", ErrorCode::from(source))]
    Connect {
        /// The module's name.
        module: String,
        /// The destination as it was requested.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// The module asked for a connection to a destination that it may not reach.
    #[error("{module}: not allowed to reach {target}; the pattern \"{target}\" would allow it")]
    Denied {
        /// The module's name.
        module: String,
        /// The destination as it was requested.
        target: String,
    },
    /// The module gave up before its connection was ready.
    #[error("{module}: {reason}")]
    Handshake {
        /// The module's name.
        module: String,
        /// The function that failed, and its answer.
        reason: String,
    },
    /// The module carries only streams: it is a WATER module, or a component of a transport without
    /// datagrams.
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
        /// The reason.
        reason: String,
    },
    /// The server did not answer in time: it or the machine is busy.
    #[error("{module}: no answer within {} s", after.as_secs_f32())]
    Timeout {
        /// The module's name.
        module: String,
        /// The time that the caller waited.
        after: Duration,
    },
    /// Too many requests are waiting for the module.
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
    /// The machine prevents the host from doing its work: no thread, no private directory.
    #[error("{0}")]
    System(String),
}
