//! Looks at modules, and runs what was recorded of one.
//!
//! Exit status: 0 if all is well, 1 if a replay differs from its recording, 2 for a file
//! that cannot be read and a command that cannot be understood.

mod inspect;
mod replay;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use watm_runtime::Error;

/// Sandboxed transport modules.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a module is and what it asks for, without running it.
    Inspect(inspect::Arguments),
    /// Run a module through the recording of one, and compare.
    Replay(replay::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
    };
    match result {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Different) => ExitCode::from(1),
        Err(error) => {
            eprintln!("watm: {error}");
            ExitCode::from(2)
        }
    }
}

/// What a command has found.
enum Outcome {
    Well,
    Different,
}

/// A file, or the fault with its name.
fn read(path: &std::path::Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
