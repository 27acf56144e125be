//! `watm update`: fetches a newer module, verifies it, and puts it into a file, once or repeatedly.

use std::path::PathBuf;
use std::time::Duration;

use serde_derive::Serialize;
use watm_seal::{Moment, Release, private};
use watm_update::{Module, Outcome as Done, Place, Report, Source, Terms, Updater, Watch};

use crate::durations::interval;
use crate::failure::{Failure, Outcome};
use crate::logging::{self, PROGRAM};
use crate::network::NetworkArguments;
use crate::sealing::{Expected, StateOptions, invalid, trusted_root};
use crate::stop::{self, Stop};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Source of the module: a file, a folder, which needs --name, https://…, http://…,
    /// oci://registry/repository:tag or oci://registry/repository@sha256:…
    source: Source,
    /// File that a host loads. It is replaced as a whole, and only by a verified module with the
    /// name of the one in place, unless --name says another.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    expected: Expected,
    /// Root to trust. By default the one that `watm trust` recorded.
    #[arg(long, value_name = "ROOT")]
    root: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
    /// Approve the capabilities of this release, which was kept aside, and put it in place.
    #[arg(long, value_name = "EPOCH.SEQUENCE", conflicts_with = "every")]
    approve: Option<Release>,
    /// Source of a freshness note about the module.
    #[arg(long, value_name = "SOURCE")]
    note: Option<Source>,
    /// Keep running, and check again after this time: 30s, 15m, 1h, 1d. By default the command
    /// checks once.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    #[command(flatten)]
    network: NetworkArguments,
    /// Print JSON, for programs: a line for each check.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: logging::Options,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    logging::start(&arguments.log);
    let mut updater = arguments.updater()?;
    let json = arguments.json;
    let mut outcome = Outcome::Well;
    stop::run(async |mut stop| match arguments.every {
        None => {
            let work = async {
                match arguments.approve {
                    Some(release) => updater.approve(release).await,
                    None => updater.check().await,
                }
            };
            if let Some(report) = stop.unless(work).await {
                outcome = show(&report, json)?;
            }
            Ok(())
        }
        Some(every) => follow(Watch::new(updater, every), json, stop).await,
    })?;
    Ok(outcome)
}

/// Checks until a signal. A report that equals the one before is not printed.
async fn follow(mut watch: Watch, json: bool, mut stop: Stop) -> Result<(), Failure> {
    let mut said = None;
    while let Some(report) = stop.unless(watch.next()).await {
        if said.as_ref() != Some(&report) {
            show(&report, json)?;
        }
        said = Some(report);
    }
    Ok(())
}

impl Arguments {
    fn updater(&self) -> Result<Updater, Failure> {
        let state = self.state.open_aloud()?;
        if let Some(folder) = state.path().parent() {
            private::create_directory(folder).map_err(|error| invalid(folder, error))?;
        }
        let known = state.load().map_err(Failure::unusable)?;
        let root = trusted_root(self.root.as_ref(), &known)?;
        let policy = self.expected.policy()?;
        let terms = Terms {
            root,
            state,
            policy,
        };
        let updater = Updater::new(self.source.clone(), Place::new(&self.to), terms)
            .network(self.network.options()?);
        Ok(match self.note.clone() {
            Some(note) => updater.note(note),
            None => updater,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown {
    source: String,
    /// The outcome: `updated`, `unchanged`, `pending` or `refused`.
    outcome: &'static str,
    code: Option<&'static str>,
    reason: Option<String>,
    name: Option<String>,
    release: Option<String>,
    version: Option<String>,
    expires: Option<String>,
    sha256: Option<String>,
    previous: Option<String>,
    /// The capabilities that it requests in addition.
    more: Vec<String>,
    pending: Option<PathBuf>,
    warnings: Vec<NoticeShown>,
    skipped: Vec<SkippedShown>,
}

#[derive(Serialize)]
struct NoticeShown {
    code: &'static str,
    text: String,
}

#[derive(Serialize)]
struct SkippedShown {
    file: PathBuf,
    code: &'static str,
    reason: String,
}

fn show(report: &Report, json: bool) -> Result<Outcome, Failure> {
    let shown = Shown::new(report);
    match json {
        true => println!(
            "{}",
            serde_json::to_string(&shown).map_err(Failure::failed)?
        ),
        false => shown.print(),
    }
    if let Done::Refused { reason, .. } = &report.outcome {
        tracing::error!(target: PROGRAM, "{}: {reason}", report.source);
    }
    Ok(match &report.outcome {
        Done::Updated { .. } | Done::Unchanged { .. } => Outcome::Well,
        Done::Pending { .. } | Done::Refused { .. } => Outcome::Otherwise,
    })
}

impl Shown {
    fn new(report: &Report) -> Shown {
        let mut shown = Shown {
            source: report.source.clone(),
            outcome: "refused",
            code: None,
            reason: None,
            name: None,
            release: None,
            version: None,
            expires: None,
            sha256: None,
            previous: None,
            more: Vec::new(),
            pending: None,
            warnings: report
                .warnings
                .iter()
                .map(|it| NoticeShown {
                    code: it.code,
                    text: it.text.clone(),
                })
                .collect(),
            skipped: report
                .skipped
                .iter()
                .map(|it| SkippedShown {
                    file: it.file.clone(),
                    code: it.code,
                    reason: it.reason.clone(),
                })
                .collect(),
        };
        match &report.outcome {
            Done::Unchanged { module } => {
                shown.outcome = "unchanged";
                shown.describe(module.as_ref());
            }
            Done::Updated { module, previous } => {
                shown.outcome = "updated";
                shown.describe(module.as_ref());
                shown.previous = previous.map(|release| release.to_string());
            }
            Done::Pending { module, more, file } => {
                shown.outcome = "pending";
                shown.describe(Some(module));
                shown.more.clone_from(more);
                shown.pending = Some(file.clone());
            }
            Done::Refused { code, reason } => {
                shown.code = Some(code);
                shown.reason = Some(reason.clone());
            }
        }
        shown
    }

    fn describe(&mut self, module: Option<&Module>) {
        let manifest = module.map(|module| &module.manifest);
        self.name = manifest.map(|it| it.name.to_string());
        self.release = manifest.map(|it| it.release.to_string());
        self.version = manifest.map(|it| it.version.clone());
        self.expires = manifest.map(|it| Moment(it.expires).to_string());
        self.sha256 = module.map(|module| module.sha256.to_string());
    }

    fn print(&self) {
        if let (Some(name), Some(release)) = (&self.name, &self.release) {
            let previous = self.previous.as_ref();
            let previous = previous.map(|release| format!(", from {release}"));
            let outcome = self.outcome;
            println!(
                "{outcome:9} {name} {release}{}",
                previous.unwrap_or_default()
            );
        }
        for (what, text) in [("expires", &self.expires), ("sha256", &self.sha256)] {
            if let Some(text) = text {
                println!("{what:9} {text}");
            }
        }
        for asked in &self.more {
            println!("asks for  {asked}");
        }
        if let Some(pending) = &self.pending {
            let pending = pending.display();
            println!("kept in   {pending}");
        }
        if let (Some(_), Some(release)) = (&self.pending, &self.release) {
            println!("approve   the same command with --approve {release}");
        }
        for skipped in &self.skipped {
            println!("skipped   {}: {}", skipped.file.display(), skipped.reason);
        }
        for warning in &self.warnings {
            println!("warning   {}", warning.text);
        }
    }
}
