//! Options that a module cannot honour because of its shape. `listen` and `serve` check them before
//! they start.

use std::path::Path;

use watm_runtime::{Module, ModuleKind};

use crate::failure::Failure;

/// The property of flows that an option requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The client's address.
    Client,
    /// The destination or the attributes, which the module learns from the client.
    Facts,
}

/// Fails if the module cannot provide the property that this option requires. A component provides
/// all.
pub(crate) fn check(module: &Module, option: &str, needs: Needs) -> Result<(), Failure> {
    let info = module.info();
    let why = match needs {
        _ if info.kind == ModuleKind::Component => return Ok(()),
        Needs::Client if !info.names_clients => return Ok(()),
        Needs::Client => {
            "its connections carry the clients' addresses, which a WATER module cannot pass to \
             the host"
        }
        Needs::Facts => "it passes nothing about a flow to the host but the peer's address",
    };
    let name = module.name();
    Err(Failure::unusable(format!(
        "{option}: not supported by {name}: {why}; remove the option, or use the component{}",
        component(name)
    )))
}

/// Names the component of the same transport for an error, by the convention of file names.
fn component(module: &str) -> String {
    let file = Path::new(module).file_name().and_then(|name| name.to_str());
    match file.and_then(|name| name.strip_suffix(".watm1.wasm")) {
        Some(name) => format!(" ({name}.wasm)"),
        None => " of the same transport".to_owned(),
    }
}
