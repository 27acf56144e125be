//! `watm trust`: changes and shows the trusted root, approvals and accepted releases.

use std::path::{Path, PathBuf};

use serde_derive::Serialize;
use watm_runtime::{BuiltIn, worlds};
use watm_seal::state::{Known, StateFile};
use watm_seal::{
    Announcement, Approval, Digest, Moment, Name, Note, Policy, Root, SignedRoot, State, verify,
};
use watm_sealing::{CapabilitiesText, now, read_root};

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::sealing::{StateOptions, invalid, trusted_root, update};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Root to trust, or a newer version of the trusted one. Without it, the command shows what is
    /// trusted and known.
    root: Option<PathBuf>,
    /// Trust the root only if it has this id, which you got from a trusted source.
    #[arg(long, requires = "root")]
    id: Option<Digest>,
    /// Freshness note to record.
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    note: Option<PathBuf>,
    /// Approve the capabilities that this sealed module requests, and any module of its name that
    /// requests no more.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "note"])]
    approve: Option<PathBuf>,
    /// Revoke the approval of modules of this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["root", "note", "approve"])]
    revoke: Option<Name>,
    /// Forget everything about modules of this name, including the releases that ran: any release
    /// is accepted again.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["root", "note", "approve", "revoke"])]
    forget: Option<Name>,
    #[command(flatten)]
    state: StateOptions,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown {
    root: Option<String>,
    /// The root built into this program, for users who have trusted none.
    built_in: Option<String>,
    version: Option<u32>,
    epoch: Option<u32>,
    expires: Option<String>,
    greatest_time: u64,
    modules: Vec<KnownShown>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct KnownShown {
    name: String,
    accepted: Option<String>,
    body_sha256: Option<String>,
    floor: Option<String>,
    announced: Option<String>,
    approved: Option<CapabilitiesText>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let store = arguments.state.open_aloud()?;
    if let Some(path) = &arguments.root {
        let state = store.load().map_err(Failure::unusable)?;
        let root = newer_root(path, arguments.id, &state)?;
        update(&store, |state| state.adopt(&root))?;
    }
    if let Some(path) = &arguments.note {
        let state = store.load().map_err(Failure::unusable)?;
        let root = trusted_root(None, &state)?;
        let note = Note::from_file(&read(path)?);
        let announced = note
            .and_then(|note| note.verify(&root, &state, now()))
            .map_err(|error| invalid(path, error))?;
        check_news(&announced, &state).map_err(|reason| invalid(path, reason))?;
        update(&store, |state| state.announce(&announced))?
            .map_err(|error| invalid(path, error))?;
    }
    if let Some(path) = &arguments.approve {
        approve(path, &store)?;
    }
    if let Some(name) = &arguments.revoke {
        match update(&store, |state| state.revoke(name))? {
            true => {}
            false => return Err(Failure::unusable(format!("{name}: nothing is approved"))),
        }
    }
    if let Some(name) = &arguments.forget {
        match update(&store, |state| state.forget(name))? {
            true => {}
            false => return Err(Failure::unusable(format!("{name}: nothing is known"))),
        }
    }
    let shown = Shown::new(
        &store.load().map_err(Failure::unusable)?,
        BuiltIn::of_release()?,
    );
    match arguments.json {
        true => println!(
            "{}",
            serde_json::to_string_pretty(&shown).map_err(Failure::failed)?
        ),
        false => shown.print(),
    }
    Ok(Outcome::Well)
}

/// Approves the capabilities of a module with a valid seal.
fn approve(path: &Path, store: &StateFile) -> Result<(), Failure> {
    let state = store.load().map_err(Failure::unusable)?;
    let root = trusted_root(None, &state)?;
    let policy = Policy {
        worlds: worlds(),
        approval: Approval::Given,
        floors: BuiltIn::of_release()?.floors,
        ..Policy::default()
    };
    let bytes = read(path)?;
    let verified =
        verify(&bytes, &root, &state, &policy, now()).map_err(|error| invalid(path, error))?;
    if let Some(proof) = verified.proof() {
        let manifest = &proof.manifest;
        let approved = manifest.capabilities.clone();
        update(store, |state| state.approve(&manifest.name, approved))?
            .map_err(|error| invalid(path, error))?;
    }
    Ok(())
}

/// Reads the root in this file: the first one, or one that follows from the trusted one.
fn newer_root(path: &Path, id: Option<Digest>, state: &State) -> Result<Root, Failure> {
    let signed = read_root(path)?;
    if let Some(id) = id
        && signed.id() != id
    {
        return Err(invalid(
            path,
            format!("its id is {}, not {id}", signed.id()),
        ));
    }
    let root = match state.root() {
        Some(known) if known.id() == signed.id() => {
            check_newer(known, &signed).map_err(|reason| invalid(path, reason))?;
            known.follow(&[signed])
        }
        Some(known) => known.follow(&[signed]),
        None => Root::trust(signed),
    };
    root.map_err(|error| invalid(path, error))
}

/// Checks that this is the trusted version, or a newer one.
fn check_newer(known: &Root, signed: &SignedRoot) -> Result<(), String> {
    let (trusted, found) = (known.record().version, signed.record().version);
    if found < trusted {
        return Err(format!(
            "is version {found} of the root, but version {trusted} is already trusted; a root \
             cannot be rolled back"
        ));
    }
    match found == trusted && signed.record() != known.record() {
        true => Err(format!(
            "differs from the trusted version {found} of the root, which is kept; the next \
             version must be {}",
            trusted.saturating_add(1)
        )),
        false => Ok(()),
    }
}

/// Fails for a note that says less than another one seen before.
fn check_news(note: &Announcement, state: &State) -> Result<(), String> {
    let mut names = state.names();
    let known = names.find(|(name, _)| **name == note.name);
    let newest = known.and_then(|(_, known)| known.announced);
    match newest.filter(|newest| *newest > (note.release, note.time)) {
        Some((release, time)) => Err(format!(
            "says that {} {} was the newest at {}; a note of {} named {release}, which is kept",
            note.name,
            note.release,
            Moment(note.time),
            Moment(time),
        )),
        None => Ok(()),
    }
}

impl Shown {
    fn new(state: &State, built: BuiltIn) -> Shown {
        let record = state.root().map(Root::record);
        Shown {
            root: state.root().map(|root| root.id().to_string()),
            built_in: built.root.map(|root| root.id().to_string()),
            version: record.map(|record| record.version),
            epoch: record.map(|record| record.epoch),
            expires: record.map(|record| Moment(record.expires).to_string()),
            greatest_time: state.greatest_time(),
            modules: state
                .names()
                .map(|(name, known)| KnownShown::new(name, known))
                .collect(),
        }
    }

    fn print(&self) {
        match (&self.root, self.version, self.epoch, &self.expires) {
            (Some(root), Some(version), Some(epoch), Some(expires)) => {
                println!("root      {root}");
                println!("version   {version}, epoch {epoch}, expires {expires}");
            }
            _ => match &self.built_in {
                Some(root) => println!("root      {root}, which came with this program"),
                None => println!("root      none; `watm trust ROOT` trusts one"),
            },
        }
        for known in &self.modules {
            println!("module    {}", known.name);
            for (what, text) in [
                ("accepted", &known.accepted),
                ("floor", &known.floor),
                ("newest", &known.announced),
            ] {
                if let Some(text) = text {
                    println!("  {what:7} {text}");
                }
            }
            let approved = known.approved.iter().flat_map(CapabilitiesText::words);
            approved.for_each(|line| println!("  approved {line}"));
        }
    }
}

impl KnownShown {
    fn new(name: &Name, known: &Known) -> KnownShown {
        KnownShown {
            name: name.to_string(),
            accepted: known.accepted.map(|(release, _)| release.to_string()),
            body_sha256: known.accepted.map(|(_, body)| body.to_string()),
            floor: known.floor.map(|floor| floor.to_string()),
            announced: known.announced.map(|(release, _)| release.to_string()),
            approved: known.approved.as_ref().map(CapabilitiesText::from),
        }
    }
}
