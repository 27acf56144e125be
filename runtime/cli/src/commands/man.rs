//! `watm man`: writes the manual pages, one for the program and one for each of its commands.

use std::path::PathBuf;

use crate::failure::{Failure, Outcome};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Existing folder for the pages, such as ~/.local/share/man/man1.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, command: clap::Command) -> Result<Outcome, Failure> {
    let folder = &arguments.folder;
    clap_mangen::generate_to(command, folder)
        .map_err(|error| Failure::unusable(format!("{}: {error}", folder.display())))?;
    Ok(Outcome::Well)
}
