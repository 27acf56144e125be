//! `watm replay`: runs a module against a recording.

use std::path::PathBuf;
use std::time::SystemTime;

use watm_runtime::{Mode, Module, Recording, RecordingEnd, Report};

use crate::failure::{Failure, Outcome};
use crate::loading::LoadingOptions;
use crate::words::plain;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A recording.
    recording: PathBuf,
    /// The .wasm file to run.
    module: PathBuf,
    #[command(flatten)]
    loading: LoadingOptions,
    /// Continue after a difference, and give the module the recorded events that fit; for another
    /// version of the module.
    #[arg(long)]
    lenient: bool,
    /// Print the records that the module logged.
    #[arg(long)]
    log: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let recording = Recording::open(&arguments.recording).map_err(Failure::unusable)?;
    let module = arguments.loading.load_for_replay(&arguments.module)?;
    introduce(&recording, &module);
    let mode = if arguments.lenient {
        Mode::Fitting
    } else {
        Mode::Exact
    };
    let report = recording.replay(&module, mode).map_err(Failure::unusable)?;
    if arguments.log {
        for record in &report.log {
            println!(
                "log       {} {}: {}",
                record.level,
                plain(&record.part),
                plain(&record.message)
            );
        }
    }
    Ok(conclude(&report))
}

fn introduce(recording: &Recording, module: &Module) {
    let age = SystemTime::now()
        .duration_since(recording.began())
        .unwrap_or_default();
    println!(
        "recorded  {} s ago, {}, by {}",
        age.as_secs(),
        plain(recording.module()),
        plain(recording.host())
    );
    if module.info().sha256 == recording.module_sha256() {
        println!("module    {}, the one that was recorded", module.name());
    } else {
        println!(
            "module    {}, not the one that was recorded (SHA-256 {})",
            module.name(),
            plain(recording.module_sha256())
        );
    }
}

fn conclude(report: &Report) -> Outcome {
    println!(
        "replayed  {} events, {} calls, {} instances, {:.3} s of CPU time",
        report.events,
        report.calls,
        report.instances,
        report.cpu_time.as_secs_f64()
    );
    for trap in &report.traps {
        println!("trap      {}", plain(trap));
    }
    for (name, count) in &report.counters {
        println!("counter   {} {count}", plain(name));
    }
    match &report.end {
        RecordingEnd::Ended(reason) => println!("end       {}", plain(reason)),
        RecordingEnd::Truncated => println!("end       the file is cut short after the last event"),
        RecordingEnd::NotReached => {}
    }
    match &report.difference {
        None => {
            println!("identical");
            Outcome::Well
        }
        Some(difference) => {
            println!("different at {}", plain(&difference.to_string()));
            Outcome::Otherwise
        }
    }
}
