//! The folder of sealed modules, and the seal of each.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use watm_policy::inspection::{inspect, worlds};
use watm_seal::{Approval, Digest, Moment, Policy, Purpose, Refused, State, seal, verify};
use watm_sealing::{ManifestText, Unusable, invalid, now, read, write_output};

use crate::authority::{Authority, this_year};

/// The years until a seal expires. A host says of a longer time that it is too long.
const YEARS: u64 = 2;

/// A new seal that does not hold under its root.
#[derive(Debug)]
pub(crate) struct Rejected(Unusable);

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Rejected {}

/// The folders of a wheel's modules.
pub(crate) struct Packaged {
    /// Has a manifest for each module.
    pub(crate) manifests: PathBuf,
    /// Keeps the keys for development, and the digests of what was sealed.
    pub(crate) state: PathBuf,
    /// Gets the sealed modules and their root.
    pub(crate) folder: PathBuf,
}

impl Packaged {
    pub(crate) fn make_folders(&self) -> io::Result<()> {
        fs::create_dir_all(&self.state)?;
        fs::create_dir_all(&self.folder)
    }

    /// Seals each of these modules, by name, unless its seal is good, and puts their root beside them.
    pub(crate) fn seal_all(
        &self,
        modules: &[(String, PathBuf)],
        authority: &Authority,
    ) -> Result<(), Box<dyn Error>> {
        put(&self.folder.join("root.watm"), &authority.file)?;
        for (name, module) in modules {
            self.seal(name, module, authority)?;
        }
        Ok(())
    }

    fn seal(&self, name: &str, module: &Path, authority: &Authority) -> Result<(), Box<dyn Error>> {
        let packaged = self.folder.join(format!("{name}.wasm"));
        let description = self.manifests.join(format!("{name}.json"));
        let (body, text) = (read(module)?, read(&description)?);
        let text = String::from_utf8(text).map_err(|error| invalid(&description, error))?;
        let inputs = inputs(&body, &text, authority);
        let sealed_from = self.state.join(format!("{name}.from"));
        let is_good = || holds(&fs::read(&packaged).unwrap_or_default(), authority).is_ok();
        if fs::read_to_string(&sealed_from).is_ok_and(|from| from == inputs) && is_good() {
            return Ok(());
        }
        let file = sealed(&body, &text, authority).map_err(|error| invalid(&description, error))?;
        holds(&file, authority).map_err(|error| Rejected(invalid(module, error)))?;
        put(&packaged, &file)?;
        Ok(put(&sealed_from, inputs.as_bytes())?)
    }
}

/// Returns a digest of everything that a seal is made from, apart from the day.
fn inputs(body: &[u8], description: &str, authority: &Authority) -> String {
    let year = this_year().to_string();
    let release = authority.numbered_release().unwrap_or_default();
    let parts = [body, description.as_bytes(), &authority.file];
    let digests = parts.map(|part| Digest::of(part).to_string());
    format!("{} {year} {release}\n", digests.join(" "))
}

/// Seals a module by its manifest, in which the release and the time of expiry are left open.
fn sealed(
    body: &[u8],
    description: &str,
    authority: &Authority,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let description = description
        .replace("@RELEASE@", &authority.release)
        .replace("@EXPIRES@", &expires());
    let text: ManifestText = serde_json::from_str(&description)?;
    let manifest = text.parse(authority.root.id(), &inspect(body)?, now())?;
    let (root, signer) = (authority.root.record(), authority.key.public());
    root.check_signer(Purpose::Seal, &manifest.name, &signer)?;
    Ok(seal(
        body,
        manifest,
        &[],
        std::slice::from_ref(&authority.key),
    )?)
}

/// Returns the first day of this month, some years later.
fn expires() -> String {
    let today = Moment(now()).to_string();
    let month = today.split('-').nth(1).unwrap_or_default();
    format!("{}-{month}-01", this_year() + YEARS)
}

/// Verifies a sealed module with nothing but the root.
fn holds(file: &[u8], authority: &Authority) -> Result<(), Refused> {
    let policy = Policy {
        worlds: worlds(),
        host: env!("CARGO_PKG_VERSION").parse().ok(),
        approval: Approval::Given,
        ..Policy::default()
    };
    verify(file, &authority.root, &State::default(), &policy, now())?;
    Ok(())
}

/// Writes a public file, unless it is as it should be: a newer time would have the wheel built again.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Unusable> {
    match fs::read(path) {
        Ok(there) if there == bytes => Ok(()),
        _ => write_output(path, bytes),
    }
}
