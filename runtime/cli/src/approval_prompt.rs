//! The question whether a module may have its capabilities. `loading` asks it at a terminal.

use std::io::{self, BufRead};
use std::path::Path;

use watm_seal::{Digest, Sealed};
use watm_sealing::CapabilitiesText;

use crate::failure::Failure;
use crate::inputs::read;
use crate::logging;
use crate::sealing::invalid;

/// Asks on the terminal whether a module may have the capabilities that it requests. Returns the
/// SHA-256 of the file that was shown, if so. The caller has verified its seal.
pub(crate) fn ask(path: &Path) -> Result<Digest, Failure> {
    let bytes = read(path)?;
    let sealed = Sealed::parse(&bytes).map_err(|error| invalid(path, error))?;
    let manifest = sealed.manifest();
    let mut question = format!("{} {} asks for\n", manifest.name, manifest.release);
    for line in CapabilitiesText::from(&manifest.capabilities).words() {
        question.push_str(&format!("  {line}\n"));
    }
    question.push_str("Approve this, now and for later releases? [y/N] ");
    logging::ask(&question).map_err(Failure::failed)?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::failed)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(Digest::of(&bytes)),
        _ => Err(invalid(path, "is not approved")),
    }
}
