//! `watm keygen`: makes a private key that signs roots, modules or notes.

use std::path::PathBuf;

use watm_sealing::write_new_key;

use crate::failure::{Failure, Outcome};
use crate::sealing::new_passphrase;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File for the private key, readable by you alone. It must not exist.
    file: PathBuf,
    /// A file with the passphrase on its first line. Without it the command asks for the
    /// passphrase.
    #[arg(long, value_name = "FILE", conflicts_with = "unencrypted")]
    passphrase_file: Option<PathBuf>,
    /// Do not encrypt the key.
    #[arg(long)]
    unencrypted: bool,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let passphrase = match arguments.unencrypted {
        true => None,
        false => Some(new_passphrase(arguments.passphrase_file.as_deref())?),
    };
    let public = write_new_key(&arguments.file, passphrase.as_deref())?;
    match arguments.json {
        true => println!("{}", serde_json::json!({ "public": public.to_string() })),
        false => println!("public    {public}"),
    }
    Ok(Outcome::Well)
}
