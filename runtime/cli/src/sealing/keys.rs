//! Keys to sign with: options, passphrases, and the check against a root's delegations.

use std::path::{Path, PathBuf};

use watm_seal::{Name, PrivateKey, Purpose, RootRecord};
use watm_sealing::{ask, open_key};

use super::invalid;
use crate::failure::Failure;
use crate::inputs::read;
use crate::logging;

/// Options for keys to sign with.
#[derive(clap::Args)]
pub(crate) struct KeyOptions {
    /// A private key to sign with, as `watm keygen` wrote it; may be given several times.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// A file with the passphrase of these keys on its first line. Without it the command asks for
    /// the passphrase.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// Options for keys with a delegation of a root.
#[derive(clap::Args)]
pub(crate) struct DelegatedKeyOptions {
    #[command(flatten)]
    keys: KeyOptions,
    /// Sign even if the root does not let these keys sign this. Hosts accept the signature once a
    /// later version of the root does.
    #[arg(long)]
    undelegated: bool,
}

impl DelegatedKeyOptions {
    /// Opens all keys, and checks that this root lets each of them sign for `purpose` and `name`.
    /// `path` names the root in errors. Without a root nothing can be checked.
    pub(crate) fn open(
        &self,
        root: Option<(&Path, &RootRecord)>,
        purpose: Purpose,
        name: &Name,
    ) -> Result<Vec<PrivateKey>, Failure> {
        let keys = self.keys.open()?;
        for key in &keys {
            let checked = match root {
                Some((path, root)) => root
                    .check_signer(purpose, name, &key.public())
                    .map_err(|error| format!("{}: {error}", path.display())),
                None => Err(format!(
                    "{name}: cannot check the signer without a root; pass it with --root"
                )),
            };
            match checked {
                Ok(()) => {}
                Err(reason) if self.undelegated => logging::warn(&reason),
                Err(reason) => {
                    return Err(Failure::unusable(format!(
                        "{reason}; sign anyway with --undelegated"
                    )));
                }
            }
        }
        Ok(keys)
    }
}

impl KeyOptions {
    /// Opens all keys.
    pub(crate) fn open(&self) -> Result<Vec<PrivateKey>, Failure> {
        let given = self.passphrase_file.as_deref().map(read_passphrase);
        let given = given.transpose()?;
        self.keys
            .iter()
            .map(|path| Ok(open_key(path, given.as_deref())?))
            .collect()
    }
}

/// Returns a passphrase for a new key, from a file or asked for twice.
pub(crate) fn new_passphrase(given: Option<&Path>) -> Result<String, Failure> {
    if let Some(path) = given {
        return read_passphrase(path);
    }
    let first = ask("new passphrase: ")?;
    match ask("once more: ")? == first {
        true => Ok(first),
        false => Err(Failure::unusable("the two passphrases differ")),
    }
}

/// Reads the first line of a file.
fn read_passphrase(path: &Path) -> Result<String, Failure> {
    let text = String::from_utf8(read(path)?).map_err(|_| invalid(path, "is not UTF-8 text"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
