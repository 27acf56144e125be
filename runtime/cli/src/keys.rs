//! Private keys that the host keeps and modules sign with: the option `--key`.

use std::path::PathBuf;
use std::str::FromStr;

use watm_runtime::{Error, Keys};

/// Options for private keys that stay in the host.
#[derive(clap::Args)]
pub(crate) struct KeyOptions {
    /// A private key in PEM that the module signs with and does not see, under the name that its
    /// configuration uses (in `tls`: host-key); may be given several times. The module's seal and
    /// grant must have host-keys.
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) key: Vec<NamedKey>,
}

impl KeyOptions {
    /// Reads the named keys.
    pub(crate) fn read(&self) -> Result<Keys, Error> {
        read(&self.key)
    }
}

/// Reads the files of named keys.
pub(crate) fn read(keys: &[NamedKey]) -> Result<Keys, Error> {
    keys.iter()
        .try_fold(Keys::new(), |all, key| all.add_file(&key.name, &key.file))
}

/// A key's name and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedKey {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

impl FromStr for NamedKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<NamedKey, &'static str> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok(NamedKey {
                name: name.to_owned(),
                file: file.into(),
            }),
            _ => Err("must be a name and a file, such as web=key.pem"),
        }
    }
}
