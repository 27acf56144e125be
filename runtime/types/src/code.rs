//! Error codes of flows and sockets, which modules and applications see.

use std::sync::Arc;
use std::{error, fmt, io};

/// The reason why an operation on a flow or a socket failed. Names follow `wasi:sockets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// The host did not grant this label, destination or service.
    AccessDenied,
    /// The other side does not implement it.
    NotSupported,
    /// An argument is out of range.
    InvalidArgument,
    /// The operation is not possible in the present state, such as a write after `shutdown_write`.
    InvalidState,
    /// A limit is reached; nothing was created.
    LimitReached,
    /// The other end did not answer in time.
    Timeout,
    /// There is no route to the other end.
    RemoteUnreachable,
    /// The other end refused.
    ConnectionRefused,
    /// The other end aborted.
    ConnectionReset,
    /// This end aborted, or the other end has stopped reading.
    ConnectionAborted,
    /// A datagram is larger than the path carries.
    DatagramTooLarge,
    /// A host name has no address.
    NameUnresolvable,
    /// Any other reason, in words for people. Clones share them.
    Other(Arc<str>),
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorCode::AccessDenied => "access denied",
            ErrorCode::NotSupported => "not supported",
            ErrorCode::InvalidArgument => "invalid argument",
            ErrorCode::InvalidState => "invalid state",
            ErrorCode::LimitReached => "limit reached",
            ErrorCode::Timeout => "timeout",
            ErrorCode::RemoteUnreachable => "remote unreachable",
            ErrorCode::ConnectionRefused => "connection refused",
            ErrorCode::ConnectionReset => "connection reset",
            ErrorCode::ConnectionAborted => "connection aborted",
            ErrorCode::DatagramTooLarge => "datagram too large",
            ErrorCode::NameUnresolvable => "name unresolvable",
            ErrorCode::Other(text) => text,
        })
    }
}

impl error::Error for ErrorCode {}

impl From<ErrorCode> for io::Error {
    fn from(code: ErrorCode) -> io::Error {
        let kind = match &code {
            ErrorCode::AccessDenied => io::ErrorKind::PermissionDenied,
            ErrorCode::NotSupported => io::ErrorKind::Unsupported,
            ErrorCode::InvalidArgument => io::ErrorKind::InvalidInput,
            ErrorCode::InvalidState => io::ErrorKind::NotConnected,
            ErrorCode::LimitReached => io::ErrorKind::QuotaExceeded,
            ErrorCode::Timeout => io::ErrorKind::TimedOut,
            ErrorCode::RemoteUnreachable => io::ErrorKind::HostUnreachable,
            ErrorCode::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            ErrorCode::ConnectionReset => io::ErrorKind::ConnectionReset,
            ErrorCode::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            ErrorCode::DatagramTooLarge => io::ErrorKind::FileTooLarge,
            ErrorCode::NameUnresolvable => io::ErrorKind::NotFound,
            ErrorCode::Other(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, code)
    }
}

impl From<&io::Error> for ErrorCode {
    fn from(error: &io::Error) -> ErrorCode {
        match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorCode::AccessDenied,
            io::ErrorKind::TimedOut => ErrorCode::Timeout,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                ErrorCode::RemoteUnreachable
            }
            io::ErrorKind::ConnectionRefused => ErrorCode::ConnectionRefused,
            io::ErrorKind::ConnectionReset => ErrorCode::ConnectionReset,
            io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected => ErrorCode::ConnectionAborted,
            _ => ErrorCode::Other(error.to_string().into()),
        }
    }
}
