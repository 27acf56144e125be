//! `watm root`: makes, signs and shows roots.

use std::path::{Path, PathBuf};

use watm_seal::{Refused, Root, SignedRoot};
use watm_sealing::{RootText, parse_json, read_complete_root, read_root, write_output};

use crate::failure::{Failure, Outcome};
use crate::sealing::{KeyOptions, invalid};

/// Text below the help of `watm root new`.
const DESCRIPTION: &str = "\
The description:
  {
    \"epoch\": 1, \"expires\": \"2031-01-01\", \"threshold\": 1, \"keys\": [\"<root key>\"],
    \"delegations\": [
      {\"name\": \"release\", \"purpose\": \"modules\", \"threshold\": 1, \"keys\": [\"<release key>\"],
       \"names\": [\"wireguard\", \"team-a/*\"]},
      {\"name\": \"notes\", \"purpose\": \"freshness\", \"threshold\": 1, \"keys\": [\"<notes key>\"],
       \"names\": [\"*\"]}
    ],
    \"revoked\": []
  }
Keys are as `watm keygen` prints them. The purpose is \"modules\" by default. Only a delegation with the
purpose \"freshness\" signs the notes of `watm note`. A delegation may have a \"ceiling\": the most that
its modules may ask for.";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a root from a description in JSON: version 1, or the one after another.
    #[command(after_help = DESCRIPTION)]
    New {
        /// Description of the root: its keys, threshold, date of expiry, and delegations.
        description: PathBuf,
        /// Output file.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// Previous version, complete. Its keys must sign the new one too.
        #[arg(long, value_name = "ROOT")]
        after: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyOptions,
    },
    /// Sign a root in place, so that it passes from one signer to the next.
    Sign {
        /// Root as `watm root new` wrote it.
        root: PathBuf,
        /// Previous version, which tells whether the new one is complete.
        #[arg(long, value_name = "ROOT")]
        after: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyOptions,
    },
    /// Show the content of a root, and its signers.
    Show {
        /// Root as `watm root new` wrote it.
        root: PathBuf,
        /// Previous version, which tells whether the new one is complete.
        #[arg(long, value_name = "ROOT")]
        after: Option<PathBuf>,
        /// Print JSON, for programs. Its field `description` is input for `watm root new`.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        Command::New {
            description,
            output,
            after,
            keys,
        } => {
            let text: RootText = parse_json(description)?;
            let previous = previous(after.as_deref())?;
            let record = text.parse(previous.as_ref());
            let signed = record.and_then(SignedRoot::new);
            let signed = signed.map_err(|error| invalid(description, error))?;
            sign(signed, previous.as_ref(), keys, output)
        }
        Command::Sign { root, after, keys } => {
            let previous = previous(after.as_deref())?;
            sign(read_root(root)?, previous.as_ref(), keys, root)
        }
        Command::Show { root, after, json } => {
            let previous = previous(after.as_deref())?;
            show(&read_root(root)?, previous.as_ref(), *json)
        }
    }
}

fn previous(after: Option<&Path>) -> Result<Option<Root>, Failure> {
    Ok(after.map(read_complete_root).transpose()?)
}

fn sign(
    signed: SignedRoot,
    previous: Option<&Root>,
    keys: &KeyOptions,
    output: &Path,
) -> Result<Outcome, Failure> {
    let signed = keys
        .open()?
        .iter()
        .try_fold(signed, SignedRoot::sign)
        .map_err(|error| invalid(output, error))?;
    write_output(output, &signed.to_file())?;
    print_id(&signed, &Complete::of(&signed, previous));
    Ok(Outcome::Well)
}

fn show(signed: &SignedRoot, previous: Option<&Root>, json: bool) -> Result<Outcome, Failure> {
    let text = RootText::from(signed);
    let complete = Complete::of(signed, previous);
    if json {
        let shown = serde_json::json!({
            "id": signed.id().to_string(),
            "version": signed.record().version,
            "complete": complete.known(),
            "reason": complete.reason(),
            "signers": signed.signers().map(|key| key.to_string()).collect::<Vec<_>>(),
            "description": text,
        });
        println!("{shown:#}");
    } else {
        print_id(signed, &complete);
        for (what, line) in text.words() {
            println!("{what:9} {line}");
        }
        for key in signed.signers() {
            println!("signed by {key}");
        }
    }
    Ok(Outcome::Well)
}

fn print_id(signed: &SignedRoot, complete: &Complete) {
    println!("root      {}", signed.id());
    println!("version   {}", signed.record().version);
    match (complete.known(), complete.reason()) {
        (Some(true), _) => println!("complete  yes"),
        (Some(false), reason) => println!("complete  no: {}", reason.unwrap_or_default()),
        (None, reason) => println!("complete  unknown: {}", reason.unwrap_or_default()),
    }
}

/// The completeness of a root: whether enough keys have signed it for a host that trusts the
/// version before to accept it by `watm trust`.
enum Complete {
    Yes,
    No(Refused),
    /// Its own keys have signed it, and the keys of this version must as well.
    Unknown(u32),
}

impl Complete {
    fn of(signed: &SignedRoot, previous: Option<&Root>) -> Complete {
        let complete = match previous {
            Some(previous) => previous.advance(signed).map(drop),
            None => Root::trust(signed.clone()).map(drop),
        };
        match (complete, signed.record().version) {
            (Err(reason), _) => Complete::No(reason),
            (Ok(()), version) if version > 1 && previous.is_none() => {
                Complete::Unknown(version - 1)
            }
            (Ok(()), _) => Complete::Yes,
        }
    }

    /// Returns `None` if it is not known.
    fn known(&self) -> Option<bool> {
        match self {
            Complete::Yes => Some(true),
            Complete::No(_) => Some(false),
            Complete::Unknown(_) => None,
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Complete::Yes => None,
            Complete::No(reason) => Some(reason.to_string()),
            Complete::Unknown(before) => Some(format!(
                "keys of version {before} must sign it too; pass that version with --after"
            )),
        }
    }
}
