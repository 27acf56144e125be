//! Carries streams through modules, looks at modules, and runs what was recorded of one.
//!
//! Exit status, of every command:
//!
//! | status | means |
//! |---|---|
//! | 0 | all went well, also when a signal ended it |
//! | 1 | the network or the module did not let it happen: a connection failed or was not allowed, an address is in use, the module refused its configuration or trapped, a replay differs; or `inspect` looked at WebAssembly that does not run here |
//! | 2 | nothing was tried: the arguments, a file, or the module cannot be used |
//!
//! The reason is one line on standard error, which begins with `watm: `.

mod dial;
mod failure;
mod inspect;
mod join;
mod listen;
mod logging;
mod options;
mod relay;
mod replay;
mod serve;
mod standard;
mod stop;
mod system;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Exit status of every command.
const EXIT_STATUS: &str = "\
Exit status:
  0  all went well, also when SIGINT or SIGTERM ended it
  1  a connection failed or was not allowed, an address is in use, the module
     refused its configuration or trapped, a replay differs, or `inspect` saw
     WebAssembly that does not run here
  2  the arguments, a file or the module cannot be used";

/// Sandboxed transport modules: components of watm:transport, and modules of WATER v0 and v1.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Connect through a module, for standard input and output or for local TCP clients.
    #[command(after_help = EXIT_STATUS)]
    Dial(dial::Arguments),
    /// Accept connections through a module, and pass on what it decodes.
    #[command(after_help = EXIT_STATUS)]
    Listen(listen::Arguments),
    /// Accept connections and have the module pass each on to one address.
    #[command(after_help = EXIT_STATUS)]
    Relay(relay::Arguments),
    /// Say what a module is and what it asks for, without running it.
    #[command(after_help = EXIT_STATUS)]
    Inspect(inspect::Arguments),
    /// Run a module through the recording of one, and compare.
    #[command(after_help = EXIT_STATUS)]
    Replay(replay::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Dial(arguments) => dial::run(arguments),
        Command::Listen(arguments) => listen::run(arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments).map_err(Failure::unusable),
    };
    match result {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Otherwise) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("watm: {failure}");
            failure.into()
        }
    }
}

/// What a command has found.
enum Outcome {
    Well,
    /// A replay that differs, a module that does not run here; it is said already.
    Otherwise,
}
