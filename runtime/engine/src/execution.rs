//! The choice between machine code and wasmtime's interpreter. `Engine::new` makes it.

use std::env;
use std::ffi::OsStr;

use crate::{Error, executable_memory};

/// The environment variable that makes the choice: `native` or `pulley`. If it is not set or
/// empty, the system makes it.
const VARIABLE: &str = "WATM_ENGINE";

/// The target of wasmtime's interpreter, for machines of this kind.
const INTERPRETER: &str = match (
    cfg!(target_pointer_width = "64"),
    cfg!(target_endian = "big"),
) {
    (true, false) => "pulley64",
    (true, true) => "pulley64be",
    (false, false) => "pulley32",
    (false, true) => "pulley32be",
};

/// How modules run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// Machine code, compiled at run time.
    Native,
    /// Bytecode for Pulley, wasmtime's interpreter, which needs no executable memory.
    Interpreted,
}

impl Execution {
    /// Chooses by the environment. Fails if the variable has another value.
    pub fn choose() -> Result<Execution, Error> {
        Execution::by(
            env::var_os(VARIABLE).as_deref(),
            executable_memory::is_allowed,
        )
    }

    fn by(given: Option<&OsStr>, is_allowed: fn() -> bool) -> Result<Execution, Error> {
        match given.map(|name| name.to_str()) {
            Some(Some("native")) => Ok(Execution::Native),
            Some(Some("pulley")) => Ok(Execution::Interpreted),
            None | Some(Some("")) if is_allowed() => Ok(Execution::Native),
            None | Some(Some("")) => {
                tracing::warn!(
                    target: "watm::engine",
                    "this process may not make memory executable: modules run in an interpreter, many times slower"
                );
                Ok(Execution::Interpreted)
            }
            Some(_) => Err(Error::System(format!(
                "{VARIABLE} is {:?}; must be native, pulley or unset",
                given.unwrap_or_default()
            ))),
        }
    }

    /// Configures wasmtime for it.
    pub fn configure(self, config: &mut wasmtime::Config) -> Result<(), Error> {
        match self {
            Execution::Native => {}
            Execution::Interpreted => {
                config
                    .target(INTERPRETER)
                    .map_err(|error| Error::System(format!("wasmtime: {error:#}")))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(given: &str, is_allowed: fn() -> bool) -> Option<Execution> {
        Execution::by(Some(OsStr::new(given)), is_allowed).ok()
    }

    #[test]
    fn the_variable_decides() {
        assert_eq!(by("pulley", || true), Some(Execution::Interpreted));
        assert_eq!(by("native", || false), Some(Execution::Native));
        assert_eq!(by("Pulley", || true), None);
    }

    #[test]
    fn without_it_the_system_decides() {
        assert_eq!(by("", || true), Some(Execution::Native));
        assert_eq!(by("", || false), Some(Execution::Interpreted));
        assert_eq!(Execution::by(None, || true).ok(), Some(Execution::Native));
        assert_eq!(
            Execution::by(None, || false).ok(),
            Some(Execution::Interpreted)
        );
    }
}
