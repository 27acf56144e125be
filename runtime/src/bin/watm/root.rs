use std::path::{Path, PathBuf};

use watm_seal::{Root, SignedRoot};

use crate::Outcome;
use crate::failure::Failure;
use crate::sealing::{
    KeyOptions, RootText, invalid, parse_json, read_complete_root, read_root, write_output,
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a root from a description in JSON: version 1, or the one after another.
    New {
        /// Its keys, threshold, date of expiry, and to whom it delegates what.
        description: PathBuf,
        /// Where it goes.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// The version before it, complete.
        #[arg(long, value_name = "ROOT")]
        after: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyOptions,
    },
    /// Sign a root in its place; it goes from one signer to the next.
    Sign {
        /// As `watm root new` wrote it.
        root: PathBuf,
        #[command(flatten)]
        keys: KeyOptions,
    },
    /// Say what a root says, and who has signed it.
    Show {
        /// As `watm root new` wrote it.
        root: PathBuf,
        /// For programs. Its field `description` is what `watm root new` takes.
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
            let previous = after.as_deref().map(read_complete_root).transpose()?;
            let record = text.parse(previous.as_ref());
            let signed = record.and_then(SignedRoot::new);
            let signed = signed.map_err(|error| invalid(description, error))?;
            sign(signed, keys, output)
        }
        Command::Sign { root, keys } => sign(read_root(root)?, keys, root),
        Command::Show { root, json } => show(&read_root(root)?, *json),
    }
}

fn sign(signed: SignedRoot, keys: &KeyOptions, output: &Path) -> Result<Outcome, Failure> {
    let signed = keys
        .open()?
        .iter()
        .try_fold(signed, SignedRoot::sign)
        .map_err(|error| invalid(output, error))?;
    write_output(output, &signed.to_file())?;
    print_id(&signed);
    Ok(Outcome::Well)
}

fn show(signed: &SignedRoot, json: bool) -> Result<Outcome, Failure> {
    let text = RootText::from(signed);
    if json {
        let shown = serde_json::json!({
            "id": signed.id().to_string(),
            "version": signed.record().version,
            "complete": Root::trust(signed.clone()).is_ok(),
            "signers": signed.signers().map(|key| key.to_string()).collect::<Vec<_>>(),
            "description": text,
        });
        println!("{shown:#}");
    } else {
        print_id(signed);
        for (what, line) in text.words() {
            println!("{what:9} {line}");
        }
        for key in signed.signers() {
            println!("signed by {key}");
        }
    }
    Ok(Outcome::Well)
}

fn print_id(signed: &SignedRoot) {
    println!("root      {}", signed.id());
    println!("version   {}", signed.record().version);
    match Root::trust(signed.clone()) {
        Ok(_) => println!("complete  yes"),
        Err(reason) => println!("complete  no: {reason}"),
    }
}
