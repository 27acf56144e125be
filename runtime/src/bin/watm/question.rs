use std::io::{self, BufRead};
use std::path::Path;

use watm_seal::{Digest, Sealed};

use crate::failure::Failure;
use crate::options::read;
use crate::sealing::{CapabilitiesText, invalid};

/// Ask on the terminal whether a module may have what it asks for. The SHA-256 of the file that was
/// shown, if so. Whether its seal is good has been found out before.
pub(crate) fn ask(path: &Path) -> Result<Digest, Failure> {
    let bytes = read(path)?;
    let sealed = Sealed::parse(&bytes).map_err(|error| invalid(path, error))?;
    let manifest = sealed.manifest();
    eprintln!("{} {} asks for", manifest.name, manifest.release);
    for line in CapabilitiesText::from(&manifest.capabilities).words() {
        eprintln!("  {line}");
    }
    eprint!("May it have that, now and later? [y/N] ");
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
