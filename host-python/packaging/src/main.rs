//! Seals the modules that a wheel carries: `watm-seal-packaged MANIFESTS STATE PACKAGED NAME=MODULE…`.
//! The Makefile calls it.
//!
//! With `WATM_RELEASE_KEY`, `WATM_ROOT` and `WATM_RELEASE` (`EPOCH.SEQUENCE`), as a release under that
//! root. Otherwise under a root for development, whose private keys are made in the folder STATE and
//! stay there. It is made anew where it does not allow what a module may have, as it does if it is
//! older than one of the capabilities. Each `NAME.json` in MANIFESTS says what that module may have. A
//! module that has not changed is not sealed again, since that would change its bytes, unless its
//! seal is broken.
//!
//! It needs neither the compiler of modules nor the command `watm`: `make run` builds it.

mod authority;
mod packaged;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use authority::Authority;
use packaged::{Packaged, Rejected};

const USAGE: &str = "usage: watm-seal-packaged MANIFESTS STATE PACKAGED NAME=MODULE…";

fn main() -> ExitCode {
    match run(env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("watm-seal-packaged: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Box<dyn Error>> {
    let mut folder = || arguments.next().map(PathBuf::from).ok_or(USAGE);
    let packaged = Packaged {
        manifests: folder()?,
        state: folder()?,
        folder: folder()?,
    };
    let modules = arguments
        .map(|named| module(&named))
        .collect::<Result<Vec<_>, _>>()?;
    packaged.make_folders()?;
    let authority = Authority::of_environment(&packaged.state)?;
    match packaged.seal_all(&modules, &authority) {
        Err(reason) if reason.is::<Rejected>() && authority.may_be_renewed() => {
            eprintln!("watm-seal-packaged: {reason}; with a new root for development:");
            packaged.seal_all(&modules, &Authority::new_development(&packaged.state)?)
        }
        sealed => sealed,
    }
}

/// Splits `NAME=MODULE`.
fn module(named: &OsString) -> Result<(String, PathBuf), String> {
    let text = named.to_str().ok_or(USAGE)?;
    let (name, path) = text.split_once('=').ok_or(USAGE)?;
    Ok((name.to_owned(), Path::new(path).to_owned()))
}
