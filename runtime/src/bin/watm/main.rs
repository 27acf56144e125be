//! Carries streams through modules, looks at modules, seals and verifies them, and runs what was
//! recorded of one.
//!
//! Exit status, of every command:
//!
//! | status | means |
//! |---|---|
//! | 0 | all went well, also when a signal ended it |
//! | 1 | the network or the module did not let it happen: a connection failed or was not allowed, an address is in use, the module refused its configuration or trapped, a replay differs; `doctor` found something amiss, `inspect` looked at WebAssembly that does not run here, `verify` at a file that is not to be run, or `update` at a source of none |
//! | 2 | nothing was tried: the arguments, a file, or the module cannot be used |
//!
//! The reason is a record of the [log](logging): in text a line that begins with `watm: `.

// First, for its macros.
#[macro_use]
mod output;

mod dial;
mod doctor;
mod failure;
mod forward;
mod inspect;
mod interval;
mod join;
mod keygen;
mod keys;
mod listen;
mod loading;
mod logging;
mod network;
mod note;
mod options;
mod pluggable;
mod proxies;
mod publish;
mod question;
mod relay;
mod replay;
mod reporting;
mod root;
mod seal;
mod sealing;
mod serve;
mod serving;
mod shape;
mod standard;
mod stop;
mod system;
mod tcp;
mod through;
mod transparent;
mod trust;
mod tunnel;
mod update;
mod verify;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

use failure::Failure;

/// The allocator, which gives back what modules have the host keep. glibc's holds two to five times as
/// much, in pieces of all sizes: see `tests/hostile/README.md`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Exit status of every command.
const EXIT_STATUS: &str = "\
Exit status:
  0  all went well, also when SIGINT or SIGTERM ended it
  1  a connection failed or was not allowed, an address is in use, the module
     refused its configuration or trapped, a replay differs, `inspect` saw
     WebAssembly that does not run here, `verify` refused a file, or `update`
     found none that may be put in place
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
    /// Connect through a module, for standard input and output, for local TCP clients, or for those
    /// of a proxy.
    #[command(after_help = EXIT_STATUS)]
    Dial(Box<dial::Arguments>),
    /// Bring up a WireGuard tunnel in this program, and let others use it: as a proxy, by ports, or
    /// by standard input and output.
    #[command(after_help = EXIT_STATUS)]
    Tunnel(Box<tunnel::Arguments>),
    /// Accept connections through a module, and pass on what it decodes.
    #[command(after_help = EXIT_STATUS)]
    Listen(listen::Arguments),
    /// Accept connections and have the module pass each on to one address.
    #[command(after_help = EXIT_STATUS)]
    Relay(relay::Arguments),
    /// Put modules in front of applications, with workers, limits, metrics and reloads.
    #[command(after_help = EXIT_STATUS)]
    Serve(Box<serving::Arguments>),
    /// Show how a program is doing that runs modules: its tunnels, or listeners, and their peers.
    #[command(after_help = EXIT_STATUS)]
    Status(reporting::show::Arguments),
    /// Check what connections from clients' addresses need of this machine, and print what to run.
    #[command(after_help = EXIT_STATUS)]
    Doctor(doctor::Arguments),
    /// Carry shadowsocks through a module, as its plugin (SIP003).
    #[command(after_help = EXIT_STATUS)]
    Plugin(Box<pluggable::plugin::Arguments>),
    /// Carry Tor through modules, as its pluggable transports.
    #[command(after_help = EXIT_STATUS)]
    Pt(pluggable::tor::Arguments),
    /// Say what a module is and what it asks for, without running it.
    #[command(after_help = EXIT_STATUS)]
    Inspect(inspect::Arguments),
    /// Run a module through the recording of one, and compare.
    #[command(after_help = EXIT_STATUS)]
    Replay(replay::Arguments),
    /// Make a private key, to sign roots or modules with.
    #[command(after_help = EXIT_STATUS)]
    Keygen(keygen::Arguments),
    /// Say who is trusted to sign what.
    #[command(after_help = EXIT_STATUS)]
    Root(root::Arguments),
    /// Seal a module, so that any channel may deliver it, or add a signature to one.
    #[command(after_help = EXIT_STATUS)]
    Seal(seal::Arguments),
    /// Check a sealed module, with nothing but a root: who signed it, and what it may do.
    #[command(after_help = EXIT_STATUS)]
    Verify(verify::Arguments),
    /// Announce the newest release of a module, for hosts that updates are kept from.
    #[command(after_help = EXIT_STATUS)]
    Note(note::Arguments),
    /// Trust a root, and show what is trusted and known.
    #[command(after_help = EXIT_STATUS)]
    Trust(trust::Arguments),
    /// Take the newest module from a file, a folder, a web server or a registry, verify it, and put
    /// it where a host loads it.
    #[command(after_help = EXIT_STATUS)]
    Update(update::Arguments),
    /// Put a sealed module into a registry, for hosts to take from there.
    #[command(after_help = EXIT_STATUS)]
    Publish(publish::Arguments),
}

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
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
        // Help, or the version, for standard output.
        Err(error) => error.exit(),
    };
    let result = match arguments.command {
        Command::Dial(arguments) => dial::run(*arguments),
        Command::Tunnel(arguments) => tunnel::run(*arguments),
        Command::Listen(arguments) => listen::run(arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Serve(arguments) => serving::run(&arguments),
        Command::Status(arguments) => reporting::show::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Plugin(arguments) => pluggable::plugin::run(&arguments),
        Command::Pt(arguments) => pluggable::tor::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Root(arguments) => root::run(&arguments),
        Command::Seal(arguments) => seal::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Note(arguments) => note::run(&arguments),
        Command::Trust(arguments) => trust::run(&arguments),
        Command::Update(arguments) => update::run(&arguments),
        Command::Publish(arguments) => publish::run(&arguments),
    };
    // What still runs ends with the program, without being asked.
    watm_runtime::note_usage();
    match result.and_then(|outcome| output::finish().map(|()| outcome)) {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Otherwise) => ExitCode::from(1),
        Err(failure) => {
            logging::fail(&failure, &given);
            failure.into()
        }
    }
}

/// Logs what is wrong with the arguments, and how the command is used.
fn unusable(error: &clap::Error, given: &[OsString]) -> ExitCode {
    let said = error.render().to_string();
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let failure = Failure::unusable(said.trim_end());
    logging::fail(&failure, given);
    failure.into()
}

/// What a command has found.
enum Outcome {
    Well,
    /// A replay that differs, a module that does not run here or is refused; it is said already.
    Otherwise,
}
