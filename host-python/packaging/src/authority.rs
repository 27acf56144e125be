//! The root and the key that modules are sealed with: those of a release, or ones for development.

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use watm_seal::{Moment, PrivateKey, Root, SignedRoot};
use watm_sealing::{
    RootText, now, open_key, read, read_complete_root, write_new_key, write_output,
};

/// The years until a root for development expires.
const YEARS: u64 = 20;

/// The root and the key that modules are sealed with.
pub(crate) struct Authority {
    pub(crate) root: Root,
    /// The bytes of the root's file.
    pub(crate) file: Vec<u8>,
    pub(crate) key: PrivateKey,
    pub(crate) release: String,
    origin: Origin,
}

/// The origin of a root. A development root of an earlier run can lack a newer capability.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Release,
    Development,
    NewDevelopment,
}

impl Authority {
    /// Returns that of the release which the environment names, or else that for development, which
    /// is made if this folder has none.
    pub(crate) fn of_environment(state: &Path) -> Result<Authority, Box<dyn Error>> {
        let files = Files::of(state);
        match env::var_os("WATM_RELEASE_KEY").filter(|path| !path.is_empty()) {
            Some(key) => Authority::of_release(Path::new(&key)),
            None if files.root.is_file() => files.open(Origin::Development),
            None => Authority::new_development(state),
        }
    }

    fn of_release(key: &Path) -> Result<Authority, Box<dyn Error>> {
        let root = PathBuf::from(named(
            "WATM_ROOT",
            "the root that WATM_RELEASE_KEY seals under",
        )?);
        Ok(Authority {
            root: read_complete_root(&root)?,
            file: read(&root)?,
            key: open_key(key, None)?,
            release: named("WATM_RELEASE", "the number of this release, EPOCH.SEQUENCE")?,
            origin: Origin::Release,
        })
    }

    /// Makes a root for development and its keys, in place of earlier ones.
    pub(crate) fn new_development(state: &Path) -> Result<Authority, Box<dyn Error>> {
        let files = Files::of(state);
        files.make()?;
        files.open(Origin::NewDevelopment)
    }

    /// True if another root might allow what this one does not.
    pub(crate) fn may_be_renewed(&self) -> bool {
        self.origin == Origin::Development
    }

    /// The number of the release, if it is one: an unchanged module is sealed anew for each.
    pub(crate) fn numbered_release(&self) -> Option<&str> {
        (self.origin == Origin::Release).then_some(&self.release)
    }
}

/// Returns a variable of the environment.
fn named(name: &str, purpose: &str) -> Result<String, String> {
    let given = env::var(name).ok().filter(|value| !value.is_empty());
    given.ok_or_else(|| format!("{name} is missing: {purpose}"))
}

/// The files of a root for development.
struct Files {
    root: PathBuf,
    root_key: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(state: &Path) -> Files {
        Files {
            root: state.join("root.watm"),
            root_key: state.join("root.key"),
            key: state.join("release.key"),
        }
    }

    fn make(&self) -> Result<(), Box<dyn Error>> {
        // The root comes last: without it, nothing here counts.
        for file in [&self.root, &self.root_key, &self.key] {
            remove(file)?;
        }
        let own = write_new_key(&self.root_key, None)?.to_string();
        let sealing = write_new_key(&self.key, None)?.to_string();
        let text: RootText = serde_json::from_value(json!({
            "expires": first_of_january(YEARS), "threshold": 1, "keys": [own],
            "delegations": [{
                "name": "development", "threshold": 1, "keys": [sealing], "names": ["watm/*"],
            }],
        }))?;
        let root = SignedRoot::new(text.parse(None)?)?;
        let root = root.sign(&open_key(&self.root_key, None)?)?;
        Ok(write_output(&self.root, &root.to_file())?)
    }

    fn open(&self, origin: Origin) -> Result<Authority, Box<dyn Error>> {
        Ok(Authority {
            root: read_complete_root(&self.root)?,
            file: read(&self.root)?,
            key: open_key(&self.key, None)?,
            release: format!("1.{}", now()),
            origin,
        })
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn first_of_january(years: u64) -> String {
    format!("{}-01-01", this_year() + years)
}

/// Returns the year of the clock.
pub(crate) fn this_year() -> u64 {
    let date = Moment(now()).to_string();
    let year = date.split('-').next().unwrap_or_default();
    year.parse().expect("a date begins with its year")
}
