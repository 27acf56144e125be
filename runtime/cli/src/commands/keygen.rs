//! `watm keygen`: makes a private key that signs roots, modules or notes.

use std::path::PathBuf;

use watm_seal::state::write_new;
use watm_seal::{KeyFile, PrivateKey};

use crate::failure::{Failure, Outcome};
use crate::sealing::{invalid, new_passphrase};

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
    let key = PrivateKey::generate().map_err(Failure::failed)?;
    let text = match arguments.unencrypted {
        true => KeyFile::plain(&key),
        false => {
            let passphrase = new_passphrase(arguments.passphrase_file.as_deref())?;
            KeyFile::encrypt(&key, &passphrase)
                .map_err(Failure::unusable)?
                .into()
        }
    };
    write_new(&arguments.file, text.as_bytes()).map_err(|error| invalid(&arguments.file, error))?;
    let public = key.public();
    match arguments.json {
        true => println!("{}", serde_json::json!({ "public": public.to_string() })),
        false => println!("public    {public}"),
    }
    Ok(Outcome::Well)
}
