//! Files of private keys, and their passphrases.

use std::path::Path;

use watm_seal::state::write_new;
use watm_seal::{KeyFile, PrivateKey, PublicKey};

use crate::files::read;
use crate::unusable::{Unusable, invalid};

/// Makes a private key, and writes it into a file that does not exist yet. Without a passphrase, the
/// key is not encrypted.
pub fn write_new_key(path: &Path, passphrase: Option<&str>) -> Result<PublicKey, Unusable> {
    let key = PrivateKey::generate().map_err(|error| invalid(path, error))?;
    let text = match passphrase {
        None => KeyFile::plain(&key),
        Some(passphrase) => KeyFile::encrypt(&key, passphrase)
            .map_err(|error| Unusable(error.to_string()))?
            .into(),
    };
    write_new(path, text.as_bytes()).map_err(|error| invalid(path, error))?;
    Ok(key.public())
}

/// Opens a private key with this passphrase. If the key is encrypted and none is given, asks for it.
pub fn open_key(path: &Path, given: Option<&str>) -> Result<PrivateKey, Unusable> {
    let text = String::from_utf8(read(path)?).map_err(|_| invalid(path, "is not a key file"))?;
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

/// Asks for a passphrase on the terminal.
pub fn ask(what: &str) -> Result<String, Unusable> {
    rpassword::prompt_password(what).map_err(|error| {
        Unusable(format!(
            "cannot ask for the passphrase: no terminal ({error}); pass it with --passphrase-file"
        ))
    })
}
