//! `watm check`: a conformance run for a module, with a report for people and for CI.
//!
//! The checks use the module as an application does, through `watm-runtime`, on this machine's
//! loopback addresses. They hold for every transport. Its own protocol is for its own tests.

mod pair;
mod report;
mod server;
mod streams;
mod subject;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;
use watm_runtime::Destination;

use self::report::{Report, Verdict};
use self::subject::{SERVER, Subject};
use crate::failure::{Failure, Outcome};
use crate::inputs::{destination, read};
use crate::loading::LoadingOptions;
use crate::logging;
use crate::stop;

/// The time limit of a check, several times what it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A .wasm file: a component of watm:transport, or a module of WATER v0 or v1.
    #[arg(value_name = "MODULE")]
    file: PathBuf,
    /// Configuration file of a server, in the module's own format.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Configuration file of a client of that server. `{server}` in it stands for the server's
    /// address and port. By default the server's configuration, if flows name no destination.
    #[arg(long, value_name = "FILE")]
    dial_config: Option<PathBuf>,
    /// Destination of the client's connections, if flows name one. By default 10.9.8.7:80.
    #[arg(long, value_name = "HOST:PORT", value_parser = destination)]
    to: Option<Destination>,
    /// Seed of the random bytes, which the report names.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Run this check alone; may be given several times.
    #[arg(long, value_name = "CHECK", value_parser = name)]
    only: Vec<String>,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: LoadingOptions,
    #[command(flatten)]
    log: logging::Options,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    logging::start(&arguments.log);
    let config = arguments.config.as_deref().map(read).transpose()?;
    let dial_config = match &arguments.dial_config {
        Some(path) => Some(
            String::from_utf8(read(path)?)
                .map_err(|_| Failure::unusable(format!("{}: must be UTF-8", path.display())))?,
        ),
        None => None,
    };
    let module = arguments.loading.for_trial().load(&arguments.file, true)?;
    let subject = Subject {
        module,
        config: config.unwrap_or_default(),
        dial_config,
        to: arguments.to.clone(),
        seed: arguments.seed,
    };
    if let Some(path) = &arguments.dial_config
        && !subject.finds_server()
    {
        return Err(Failure::unusable(format!(
            "{}: must contain {SERVER}, which stands for the address and port of the server that \
             the checks start, as in Endpoint = {SERVER}",
            path.display()
        )));
    }
    let mut report = Report::new(&subject);
    stop::run(|mut stop| async move {
        let checks = all(&subject, &arguments.only, &mut report);
        let stopped = stop.unless(checks).await.is_none();
        report.print(arguments.json)?;
        match stopped || report.failed() {
            true => Err(Failure::failed(report.summary())),
            false => Ok(()),
        }
    })
}

/// A check of a module.
struct Check {
    name: &'static str,
    /// The rest of a sentence that begins with "the module".
    does: &'static str,
    needs: Needs,
    run: for<'a> fn(&'a Subject) -> Running<'a>,
}

/// The part of a module that a check needs.
#[derive(PartialEq, Eq)]
enum Needs {
    Nothing,
    /// A server that starts.
    Server,
    /// Both ends.
    Pair,
}

/// A check that runs.
type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Verdict>> + Send + 'a>>;

/// All checks, those of a server alone first.
const CHECKS: [Check; 13] = [
    Check {
        name: "description",
        does: "describes itself",
        needs: Needs::Nothing,
        run: |subject| Box::pin(async { subject.described() }),
    },
    Check {
        name: START,
        does: "starts, serves, and ends within a second",
        needs: Needs::Nothing,
        run: |subject| Box::pin(server::starts(subject)),
    },
    Check {
        name: "configurations",
        does: "refuses damaged configurations with an error",
        needs: Needs::Nothing,
        run: |subject| Box::pin(server::refuses_damaged_configurations(subject)),
    },
    Check {
        name: "idle",
        does: "uses no CPU while nothing happens",
        needs: Needs::Server,
        run: |subject| Box::pin(server::rests(subject)),
    },
    Check {
        name: "strangers",
        does: "keeps running after random bytes of strangers",
        needs: Needs::Server,
        run: |subject| Box::pin(server::survives_strangers(subject)),
    },
    Check {
        name: "reconfigure",
        does: "takes its configuration again, and keeps it after a damaged one",
        needs: Needs::Server,
        run: |subject| Box::pin(server::reconfigures(subject)),
    },
    Check {
        name: "swap",
        does: "replaces itself while it serves",
        needs: Needs::Server,
        run: |subject| Box::pin(server::swaps(subject)),
    },
    Check {
        name: "bytes",
        does: "carries each byte, in both directions at once",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::bytes(subject)),
    },
    Check {
        name: "half-close",
        does: "ends one direction of a stream, and carries the other",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::half_close(subject)),
    },
    Check {
        name: "reset",
        does: "reports a reset at the other end",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::reset(subject)),
    },
    Check {
        name: "back-pressure",
        does: "stops a sender whose receiver does not read, and loses nothing",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::back_pressure(subject)),
    },
    Check {
        name: "many",
        does: "carries a hundred streams at once",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::many(subject)),
    },
    Check {
        name: "swap-streams",
        does: "keeps streams while both ends swap their module",
        needs: Needs::Pair,
        run: |subject| Box::pin(streams::swap(subject)),
    },
];

/// The check without which no server is checked.
const START: &str = "start";

/// Runs the checks of these names, or all.
async fn all(subject: &Subject, only: &[String], report: &mut Report) {
    let mut starts = true;
    for check in &CHECKS {
        if !only.is_empty() && !only.iter().any(|name| name == check.name) {
            continue;
        }
        let verdict = match check.needs {
            Needs::Server | Needs::Pair if !starts => Verdict::Skipped("does not start".to_owned()),
            Needs::Pair => match subject.can_pair() {
                Err(reason) => Verdict::Skipped(reason),
                Ok(()) => within((check.run)(subject)).await,
            },
            _ => within((check.run)(subject)).await,
        };
        if check.name == START && verdict != Verdict::Good {
            starts = false;
        }
        report.add(check.name, check.does, verdict);
    }
}

/// Returns the name of a check.
fn name(text: &str) -> Result<String, String> {
    let names = CHECKS.map(|check| check.name);
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("must be one of {}", names.join(", "))),
    }
}

/// Returns the verdict of a check, which fails after its time.
async fn within(check: Running<'_>) -> Verdict {
    match timeout(LIMIT, check).await {
        Ok(Ok(())) => Verdict::Good,
        Ok(Err(verdict)) => verdict,
        Err(_) => Verdict::Failed(format!("did not end within {} s", LIMIT.as_secs())),
    }
}
