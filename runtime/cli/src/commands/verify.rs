//! `watm verify`: verifies a sealed module, and shows its manifest.

use std::path::PathBuf;

use serde_derive::Serialize;
use watm_runtime::worlds;
use watm_seal::{Approval, Digest, ModuleRole, Policy, Refused, Verified, verify};
use watm_sealing::{ManifestText, now};

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::sealing::{Expected, StateOptions, trusted_root, update};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A sealed module, from anywhere.
    file: PathBuf,
    /// Root to trust. By default the one that `watm trust` recorded.
    #[arg(long, value_name = "ROOT")]
    root: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    expected: Expected,
    /// Accept only modules with this role: dialer, fixed-dialer, listener or relay.
    #[arg(long)]
    role: Option<ModuleRole>,
    /// Accept only modules that understand this version of the configuration.
    #[arg(long, value_name = "NUMBER")]
    config_schema: Option<u32>,
    /// Accept only a file with this SHA-256; may be given several times.
    #[arg(long = "pin", value_name = "SHA256")]
    pins: Vec<Digest>,
    /// Record the module as accepted and its capabilities as approved: older releases are refused
    /// from now on.
    #[arg(long)]
    accept: bool,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    accepted: bool,
    /// The code of the refusal, which is stable.
    code: Option<&'static str>,
    reason: Option<String>,
    sha256: String,
    root: Option<RootShown>,
    delegation: Option<String>,
    signers: Vec<String>,
    manifest: Option<ManifestText>,
    warnings: Vec<WarningShown>,
}

#[derive(Serialize)]
struct RootShown {
    id: String,
    version: u32,
}

#[derive(Serialize)]
struct WarningShown {
    code: &'static str,
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let bytes = read(&arguments.file)?;
    let store = arguments.state.open_aloud()?;
    let state = store.load().map_err(Failure::unusable)?;
    let root = trusted_root(arguments.root.as_ref(), &state)?;
    let policy = arguments.policy()?;
    let result = verify(&bytes, &root, &state, &policy, now());
    if arguments.accept
        && let Ok(verified) = &result
    {
        update(&store, |state| state.accept(verified))?;
    }
    let shown = Shown::new(&bytes, &result);
    match arguments.json {
        true => println!(
            "{}",
            serde_json::to_string_pretty(&shown).map_err(Failure::failed)?
        ),
        false => shown.print(),
    }
    Ok(match shown.accepted {
        true => Outcome::Well,
        false => Outcome::Otherwise,
    })
}

impl Arguments {
    fn policy(&self) -> Result<Policy, Failure> {
        Ok(Policy {
            worlds: worlds(),
            role: self.role,
            config_schema: self.config_schema,
            pins: self.pins.iter().copied().collect(),
            // Nothing is run: the output shows the requested capabilities.
            approval: Approval::Given,
            ..self.expected.policy()?
        })
    }
}

impl Shown {
    fn new(file: &[u8], result: &Result<Verified<'_>, Refused>) -> Shown {
        let refused = result.as_ref().err();
        let proof = result.as_ref().ok().and_then(Verified::proof);
        Shown {
            accepted: refused.is_none(),
            code: refused.map(Refused::code),
            reason: refused.map(ToString::to_string),
            sha256: Digest::of(file).to_string(),
            root: proof.map(|proof| RootShown {
                id: proof.root.id().to_string(),
                version: proof.root.record().version,
            }),
            delegation: proof.map(|proof| proof.delegation.to_string()),
            signers: proof
                .into_iter()
                .flat_map(|proof| &proof.signers)
                .map(ToString::to_string)
                .collect(),
            manifest: proof.map(|proof| (&proof.manifest).into()),
            warnings: result
                .iter()
                .flat_map(|verified| verified.warnings())
                .map(|warning| WarningShown {
                    code: warning.code(),
                    text: warning.to_string(),
                })
                .collect(),
        }
    }

    fn print(&self) {
        match (&self.code, &self.reason) {
            (Some(code), Some(reason)) => println!("accepted  no, {code}: {reason}"),
            _ => println!("accepted  yes"),
        }
        for warning in &self.warnings {
            println!("warning   {}", warning.text);
        }
        for (what, line) in self.manifest.iter().flat_map(ManifestText::words) {
            println!("{what:9} {line}");
        }
        if let Some(delegation) = &self.delegation {
            println!("under     {delegation}");
        }
        for key in &self.signers {
            println!("signed by {key}");
        }
        if let Some(root) = &self.root {
            println!("root      {}, version {}", root.id, root.version);
        }
        println!("sha256    {}", self.sha256);
    }
}
