//! Errors as Python exceptions. Every class of the native module raises them.

use std::io;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyErrArguments, create_exception};
use watm_runtime::{Error, ErrorCode};

create_exception!(
    mitmproxy_watm._native,
    ModuleError,
    PyValueError,
    "A module cannot be used: the file is not a module, the module asks for more than it is \
     granted, or it failed."
);

/// The advice for Python programs whose module has no seal. mitmproxy's users have an option
/// instead.
const UNSEALED: &str = "; for development, allow it with unsealed=True";

/// Returns an `OSError` of the matching subclass.
pub(crate) fn flow_error(error: &ErrorCode) -> PyErr {
    os_error(name(error), &error.to_string())
}

/// Returns a `ModuleError`, unless Python has a better class for the fault: `ValueError` for a
/// configuration or an option, `OSError` with its number for a socket or a file.
pub(crate) fn runtime_error(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Config { .. } | Error::Options(_) => PyValueError::new_err(text),
        Error::Untrusted {
            code: "unsealed", ..
        } => ModuleError::new_err(format!("{text}{UNSEALED}")),
        Error::Grant { source, .. } | Error::File { source, .. } => {
            system_error(&source, &text).unwrap_or_else(|| PyOSError::new_err(text))
        }
        Error::Connect { source, .. } => system_error(&source, &text)
            .unwrap_or_else(|| os_error(name(&ErrorCode::from(&source)), &text)),
        Error::Denied { .. } => os_error("EACCES", &text),
        Error::Handshake { .. } => os_error("ECONNABORTED", &text),
        Error::NoDatagrams { .. } => os_error("EOPNOTSUPP", &text),
        Error::Refused { code, .. } => os_error(name(&code), &text),
        Error::Timeout { .. } => os_error("ETIMEDOUT", &text),
        Error::Busy { .. } => os_error("EBUSY", &text),
        Error::Closed { .. } | Error::System(_) | Error::State(_) => PyOSError::new_err(text),
        _ => ModuleError::new_err(text),
    }
}

/// Returns the system's error with its number. Python prints the number before the text, so it is
/// removed from the text.
fn system_error(source: &io::Error, text: &str) -> Option<PyErr> {
    let number = source.raw_os_error()?;
    let text = text.replace(&format!(" (os error {number})"), "");
    // The last argument is for Windows, where Python derives the first from it.
    Some(PyOSError::new_err((number, text, None::<String>, number)))
}

/// Returns an `OSError` whose number has this name in Python's module `errno`.
pub(crate) fn os_error(name: &'static str, message: &str) -> PyErr {
    PyOSError::new_err(Arguments {
        name,
        message: message.to_owned(),
    })
}

/// Arguments of an `OSError`. Its number differs between operating systems, and on Windows between
/// Python and C, so Python looks it up.
struct Arguments {
    name: &'static str,
    message: String,
}

impl PyErrArguments for Arguments {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        let number = py
            .import("errno")
            .and_then(|errno| errno.getattr(self.name)?.extract::<i32>());
        match number {
            Ok(number) => (number, self.message).arguments(py),
            // This Python lacks the name. The message still says what happened.
            Err(_) => self.message.arguments(py),
        }
    }
}

fn name(error: &ErrorCode) -> &'static str {
    match error {
        ErrorCode::AccessDenied => "EACCES",
        ErrorCode::NotSupported => "EOPNOTSUPP",
        ErrorCode::InvalidArgument => "EINVAL",
        ErrorCode::InvalidState => "EPIPE",
        ErrorCode::LimitReached => "ENOBUFS",
        ErrorCode::Timeout => "ETIMEDOUT",
        ErrorCode::RemoteUnreachable => "EHOSTUNREACH",
        ErrorCode::ConnectionRefused => "ECONNREFUSED",
        ErrorCode::ConnectionReset => "ECONNRESET",
        ErrorCode::ConnectionAborted => "ECONNABORTED",
        ErrorCode::DatagramTooLarge => "EMSGSIZE",
        ErrorCode::NameUnresolvable => "EADDRNOTAVAIL",
        ErrorCode::Other(_) => "EIO",
    }
}
