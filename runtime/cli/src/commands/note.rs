//! `watm note`: writes a signed freshness note.

use std::path::PathBuf;

use watm_seal::{Announcement, Moment, Name, Note, Purpose, Release};
use watm_sealing::{now, read_root, write_output};

use crate::failure::{Failure, Outcome};
use crate::sealing::{DelegatedKeyOptions, invalid};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the module.
    name: Name,
    /// Newest release, as of now.
    #[arg(value_name = "EPOCH.SEQUENCE")]
    release: Release,
    /// Root that the module is sealed under, in the version that lets the keys sign notes: by a
    /// delegation with "purpose": "freshness".
    #[arg(long, value_name = "ROOT")]
    root: PathBuf,
    /// Output file.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    keys: DelegatedKeyOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let (path, name) = (&arguments.root, &arguments.name);
    let root = read_root(path)?;
    let note = Note::new(Announcement {
        root: root.id(),
        name: name.clone(),
        release: arguments.release,
        time: now(),
    });
    let note = arguments
        .keys
        .open(Some((path, root.record())), Purpose::Freshness, name)?
        .iter()
        .try_fold(note, Note::sign)
        .map_err(|error| invalid(&arguments.output, error))?;
    write_output(&arguments.output, &note.to_file())?;
    let announced = note.announcement();
    let time = Moment(announced.time);
    println!(
        "newest    {} {}, as of {time}",
        announced.name, announced.release
    );
    Ok(Outcome::Well)
}
