use std::fmt;
use std::process::ExitCode;

use watm_runtime::Error;

/// Why a command failed, and what its exit status is: see the program's own page.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    reason: String,
}

impl Failure {
    /// The network or the module did not let it happen.
    pub(crate) fn failed(reason: impl fmt::Display) -> Failure {
        Failure {
            status: 1,
            reason: reason.to_string(),
        }
    }

    /// The same, of this.
    pub(crate) fn about(self, what: &str) -> Failure {
        Failure {
            reason: format!("{what}: {}", self.reason),
            ..self
        }
    }

    /// Nothing was tried.
    pub(crate) fn unusable(reason: impl fmt::Display) -> Failure {
        Failure {
            status: 2,
            reason: reason.to_string(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Untrusted {
                code: "unsealed", ..
            } => Failure::unusable(format!(
                "{error}; for development, --unsealed runs it as it is"
            )),
            Error::Module { .. }
            | Error::Untrusted { .. }
            | Error::NotGranted { .. }
            | Error::State(_)
            | Error::File { .. }
            | Error::Recording { .. }
            | Error::Options(_) => Failure::unusable(error),
            _ => Failure::failed(error),
        }
    }
}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> ExitCode {
        ExitCode::from(failure.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
