//! The command `watm`: carries streams through modules, inspects, seals and verifies modules, and
//! replays recordings.
//!
//! Exit status of every command:
//!
//! | status | meaning |
//! |---|---|
//! | 0 | success, also when a signal ended it |
//! | 1 | the network or the module failed: a connection failed or was not allowed, an address is in use, the module refused its configuration or trapped, a replay differs; `doctor` found a problem, `inspect` found WebAssembly that does not run here, a module failed a `check`, `verify` refused a file, or `update` found no usable module |
//! | 2 | nothing was tried: the arguments, a file, or the module cannot be used |
//!
//! The reason is a record of the log (`logging/`): in text a line that begins with `watm: `.
//!
//! `main.rs` and the fuzz targets of `tests/fuzz/host` call this library.

// First, because other modules use its macros.
#[macro_use]
mod output;

mod accept_loop;
mod approval_prompt;
mod commands;
mod durations;
mod failure;
mod follow;
mod forward;
mod inputs;
mod join;
mod keys;
mod loading;
mod logging;
mod network;
mod options;
mod proxies;
mod reporting;
mod sealing;
mod shape;
mod sizes;
mod stdio;
mod stop;
mod system;
mod tcp;
mod through;
mod transparent;
mod watch;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use commands::{
    check, completions, dial, doctor, inspect, keygen, listen, man, new, note, pluggable, publish,
    relay, replay, root, seal, serve, status, trust, tunnel, update, verify,
};
use failure::{Failure, Outcome};

#[doc(hidden)]
pub use commands::serve::check_file as check_serve_file;
#[doc(hidden)]
pub use system::{ALLOCATOR, Allocator};

/// Exit status of every command.
const EXIT_STATUS: &str = "\
Exit status:
  0  success, also if ended by SIGINT or SIGTERM
  1  a connection failed or was not allowed, an address is in use, the module
     refused its configuration or trapped, a replay differs, `inspect` saw
     WebAssembly that does not run here, `verify` refused a file, or `update`
     found none that it may install
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
    /// Connect through a module, for standard input and output, for local TCP clients, or for
    /// clients of a proxy.
    #[command(after_help = EXIT_STATUS)]
    Dial(Box<dial::Arguments>),
    /// Bring up a WireGuard tunnel in this program, and use it as a proxy, by port forwards, or by
    /// standard input and output.
    #[command(after_help = EXIT_STATUS)]
    Tunnel(Box<tunnel::Arguments>),
    /// Accept connections through a module, and forward the decoded data.
    #[command(after_help = EXIT_STATUS)]
    Listen(listen::Arguments),
    /// Accept connections, and let the module pass each on to one address.
    #[command(after_help = EXIT_STATUS)]
    Relay(relay::Arguments),
    /// Put modules in front of applications, with workers, limits, metrics and reloads.
    #[command(after_help = EXIT_STATUS)]
    Serve(Box<serve::Arguments>),
    /// Show the status of a program that runs modules: its tunnels or listeners, and their peers.
    #[command(after_help = EXIT_STATUS)]
    Status(status::Arguments),
    /// Check the requirements of connections from clients' addresses, and print the commands that
    /// meet them.
    #[command(after_help = EXIT_STATUS)]
    Doctor(doctor::Arguments),
    /// Carry shadowsocks through a module, as its plugin (SIP003).
    #[command(after_help = EXIT_STATUS)]
    Plugin(Box<pluggable::plugin::Arguments>),
    /// Carry Tor through modules, as its pluggable transports.
    #[command(after_help = EXIT_STATUS)]
    Pt(pluggable::tor::Arguments),
    /// Show a module's kind and requests, without running it.
    #[command(after_help = EXIT_STATUS)]
    Inspect(inspect::Arguments),
    /// Write a whole transport to start from: a crate, or a file in C.
    #[command(after_help = EXIT_STATUS)]
    New(new::Arguments),
    /// Test a module: starts, damaged configurations, strangers, swaps, and streams between two ends
    /// of it. Prints a report.
    Check(check::Arguments),
    /// Run a module with the recording of another run, and compare.
    #[command(after_help = EXIT_STATUS)]
    Replay(replay::Arguments),
    /// Make a private key that signs roots or modules.
    #[command(after_help = EXIT_STATUS)]
    Keygen(keygen::Arguments),
    /// Make, sign and show roots, the lists of keys and of the names that each may sign.
    #[command(after_help = EXIT_STATUS)]
    Root(root::Arguments),
    /// Seal a module, so that any channel may deliver it, or add a signature to one.
    #[command(after_help = EXIT_STATUS)]
    Seal(seal::Arguments),
    /// Verify a sealed module with nothing but a root, and show its signers and capabilities.
    #[command(after_help = EXIT_STATUS)]
    Verify(verify::Arguments),
    /// Announce the newest release of a module to hosts whose updates may be withheld.
    #[command(after_help = EXIT_STATUS)]
    Note(note::Arguments),
    /// Trust a root, and show what this host trusts and knows.
    #[command(after_help = EXIT_STATUS)]
    Trust(trust::Arguments),
    /// Fetch the newest module from a file, a folder, a web server or a registry, verify it, and
    /// put it where a host loads it.
    #[command(after_help = EXIT_STATUS)]
    Update(update::Arguments),
    /// Upload a sealed module to a registry, for hosts to download.
    #[command(after_help = EXIT_STATUS)]
    Publish(publish::Arguments),
    /// Print the script with which a shell completes this program's command line.
    #[command(after_help = EXIT_STATUS)]
    Completions(completions::Arguments),
    /// Write the manual pages of this program into a folder.
    #[command(after_help = EXIT_STATUS)]
    Man(man::Arguments),
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    if let [_, word, control] = &*given
        && word == tunnel::HELPER
        && let Some(Ok(control)) = control.to_str().map(str::parse)
    {
        // This process runs a program for `tunnel --exec`, and has one thread for that.
        return ExitCode::from(watm_launch::help(control) as u8);
    }
    let given = match pluggable::plugin::arguments(&given, |name| std::env::var(name).ok()) {
        Ok(None) => given,
        Ok(Some(arguments)) => arguments,
        Err((failure, given)) => {
            logging::fail(&failure, &given);
            return failure.into();
        }
    };
    let arguments = match Arguments::try_parse_from(&given) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return unusable(&error, &given),
        // Help or the version, on standard output.
        Err(error) => error.exit(),
    };
    let result = match arguments.command {
        Command::Dial(arguments) => dial::run(*arguments),
        Command::Tunnel(arguments) => tunnel::run(*arguments),
        Command::Listen(arguments) => listen::run(arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Plugin(arguments) => pluggable::plugin::run(&arguments),
        Command::Pt(arguments) => pluggable::tor::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Root(arguments) => root::run(&arguments),
        Command::Seal(arguments) => seal::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Note(arguments) => note::run(&arguments),
        Command::Trust(arguments) => trust::run(&arguments),
        Command::Update(arguments) => update::run(&arguments),
        Command::Publish(arguments) => publish::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Man(arguments) => man::run(&arguments, Arguments::command()),
    };
    // Instances that still run end with the program, without notice.
    watm_runtime::note_usage();
    match result.and_then(|outcome| output::finish().map(|()| outcome)) {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Otherwise) => ExitCode::from(1),
        // The system has one byte for it.
        Ok(Outcome::Program(status)) => ExitCode::from(status as u8),
        Err(failure) => {
            logging::fail(&failure, &given);
            failure.into()
        }
    }
}

/// Logs the fault in the arguments, and the usage of the command.
fn unusable(error: &clap::Error, given: &[OsString]) -> ExitCode {
    let said = error.render().to_string();
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let failure = Failure::unusable(said.trim_end());
    logging::fail(&failure, given);
    failure.into()
}
