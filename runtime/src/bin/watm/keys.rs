use std::path::PathBuf;
use std::str::FromStr;

use watm_runtime::{Error, Keys};

/// Private keys that stay here.
#[derive(clap::Args)]
pub(crate) struct KeyOptions {
    /// A private key in PEM that the module has signed with and does not get, by the name that its
    /// configuration has for it (of `tls`: host-key); may be given several times. The module's seal
    /// and grant need host-keys for it.
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) key: Vec<NamedKey>,
}

impl KeyOptions {
    /// Those that were named, read.
    pub(crate) fn read(&self) -> Result<Keys, Error> {
        read(&self.key)
    }
}

/// Read the files.
pub(crate) fn read(keys: &[NamedKey]) -> Result<Keys, Error> {
    keys.iter()
        .try_fold(Keys::new(), |all, key| all.add_file(&key.name, &key.file))
}

/// A key and where it is.
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
