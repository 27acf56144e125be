use std::path::{Path, PathBuf};

use watm_seal::{KeyFile, PrivateKey};

use super::invalid;
use crate::failure::Failure;
use crate::options::read;

/// The keys to sign with.
#[derive(clap::Args)]
pub(crate) struct KeyOptions {
    /// A private key to sign with, as `watm keygen` wrote it; may be given several times.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// A file with the passphrase of these keys on its first line. By default it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl KeyOptions {
    /// Open all of them.
    pub(crate) fn open(&self) -> Result<Vec<PrivateKey>, Failure> {
        let given = self.passphrase_file.as_deref().map(read_passphrase);
        let given = given.transpose()?;
        self.keys
            .iter()
            .map(|path| open(path, given.as_deref()))
            .collect()
    }
}

fn open(path: &Path, given: Option<&str>) -> Result<PrivateKey, Failure> {
    let text = String::from_utf8(read(path)?).map_err(|_| invalid(path, "is no key file"))?;
    let file = KeyFile::parse(&text).map_err(|error| invalid(path, error))?;
    let opened = match given {
        None if file.is_encrypted() => {
            let asked = ask(&format!("passphrase of {}: ", path.display()))?;
            file.open(Some(&asked))
        }
        _ => file.open(given),
    };
    opened.map_err(|error| invalid(path, error))
}

/// A passphrase for a new key: from a file, or asked for twice.
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

/// The first line of a file.
fn read_passphrase(path: &Path) -> Result<String, Failure> {
    let text = String::from_utf8(read(path)?).map_err(|_| invalid(path, "is no text"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn ask(what: &str) -> Result<String, Failure> {
    rpassword::prompt_password(what).map_err(|error| {
        Failure::unusable(format!(
            "no passphrase, since there is no terminal to ask on ({error}); \
             --passphrase-file names one"
        ))
    })
}
