//! `watm completions`: prints the script with which a shell completes the command line.

use clap_complete::Shell;

use crate::failure::{Failure, Outcome};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Shell that the script is for.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "watm", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(Outcome::Well)
}
