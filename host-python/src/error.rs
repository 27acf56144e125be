//! Errors as Python's exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use watm_runtime::{Error, ErrorCode};

create_exception!(
    mitmproxy_watm._native,
    ModuleError,
    PyValueError,
    "A module cannot be used: it is not one, it asks for more than it is granted, or it failed."
);

/// An `OSError` of the subclass that Python has for this.
pub(crate) fn flow_error(error: &ErrorCode) -> PyErr {
    os_error(number(error), &error.to_string())
}

/// A `ModuleError`, unless Python has a better class for the fault: `ValueError` for a
/// configuration or an option, `OSError` with its number for a socket or a file.
pub(crate) fn runtime_error(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Config { .. } | Error::Options(_) => PyValueError::new_err(text),
        Error::Grant { source, .. } | Error::File { source, .. } => match source.raw_os_error() {
            Some(number) => os_error(number, &text),
            None => PyOSError::new_err(text),
        },
        Error::Refused { code, .. } => os_error(number(&code), &text),
        Error::Timeout { .. } => os_error(libc::ETIMEDOUT, &text),
        Error::Closed { .. } | Error::System(_) => PyOSError::new_err(text),
        _ => ModuleError::new_err(text),
    }
}

pub(crate) fn os_error(number: i32, message: &str) -> PyErr {
    PyOSError::new_err((number, message.to_owned()))
}

fn number(error: &ErrorCode) -> i32 {
    match error {
        ErrorCode::AccessDenied => libc::EACCES,
        ErrorCode::NotSupported => libc::EOPNOTSUPP,
        ErrorCode::InvalidArgument => libc::EINVAL,
        ErrorCode::InvalidState => libc::EPIPE,
        ErrorCode::LimitReached => libc::ENOBUFS,
        ErrorCode::Timeout => libc::ETIMEDOUT,
        ErrorCode::RemoteUnreachable => libc::EHOSTUNREACH,
        ErrorCode::ConnectionRefused => libc::ECONNREFUSED,
        ErrorCode::ConnectionReset => libc::ECONNRESET,
        ErrorCode::ConnectionAborted => libc::ECONNABORTED,
        ErrorCode::DatagramTooLarge => libc::EMSGSIZE,
        ErrorCode::NameUnresolvable => libc::EADDRNOTAVAIL,
        ErrorCode::Other(_) => libc::EIO,
    }
}
