//! Results of commands, with their exit status. Every command returns one to `main`.

use std::fmt;
use std::process::ExitCode;

use watm_runtime::Error;
use watm_sealing::Unusable;

/// The result of a command.
pub(crate) enum Outcome {
    Well,
    /// A replay that differs, or a module that does not run here or is refused. The output says so
    /// already.
    Otherwise,
    /// The exit status of the program that the command ran.
    Program(i32),
}

/// The reason why a command failed, with its exit status: see the crate's page.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    reason: String,
}

impl Failure {
    /// Creates a failure of the network or the module, with status 1.
    pub(crate) fn failed(reason: impl fmt::Display) -> Failure {
        Failure {
            status: 1,
            reason: reason.to_string(),
        }
    }

    /// Prefixes the reason with an object.
    pub(crate) fn about(self, what: &str) -> Failure {
        Failure {
            reason: format!("{what}: {}", self.reason),
            ..self
        }
    }

    /// Creates a failure of arguments or files before any attempt, with status 2.
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
                "{error}; for development, allow it with --unsealed"
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

impl From<Unusable> for Failure {
    fn from(reason: Unusable) -> Failure {
        Failure::unusable(reason)
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
