//! Watched folders as sources: lists the releases of a module in one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use watm_seal::{Name, Refused, Release, Sealed};

use super::{LIMIT, path};
use crate::error::FetchError;
use crate::outcome::Skipped;

/// The most modules in a folder: more releases than anybody keeps in one.
const MOST_FILES: usize = 256;

/// A watched folder with the results of the last look at its files. Unchanged files are not read
/// again.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    seen: BTreeMap<PathBuf, Seen>,
}

#[derive(Debug, Clone)]
struct Seen {
    size: u64,
    modified: Option<SystemTime>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Module(Name, Release),
    Bad { code: &'static str, reason: String },
}

/// The files of a folder for one name.
pub(crate) struct Listing {
    /// Candidates, newest first. Nothing in them is verified.
    pub(crate) candidates: Vec<(Release, PathBuf)>,
    /// Files that cannot be read as sealed modules.
    pub(crate) skipped: Vec<Skipped>,
}

impl Folder {
    /// Lists the files whose name ends in `.wasm`. Those of other modules are left out.
    pub(crate) fn list(&mut self, folder: &Path, name: &Name) -> Result<Listing, FetchError> {
        let mut seen = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "wasm") {
                continue;
            }
            if seen.len() == MOST_FILES {
                return Err(FetchError::NoCandidate(format!(
                    "has more than {MOST_FILES} modules; must have fewer"
                )));
            }
            // The file may be gone by now.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            let (size, modified) = (metadata.len(), metadata.modified().ok());
            let known = self.seen.remove(&path);
            let known = known.filter(|it| it.size == size && it.modified == modified);
            let now = known.unwrap_or_else(|| Seen {
                size,
                modified,
                what: look(&path),
            });
            seen.insert(path, now);
        }
        self.seen = seen;
        Ok(self.of(name))
    }

    fn of(&self, wanted: &Name) -> Listing {
        let mut listing = Listing {
            candidates: Vec::new(),
            skipped: Vec::new(),
        };
        for (path, seen) in &self.seen {
            match &seen.what {
                What::Module(name, release) if name == wanted => {
                    listing.candidates.push((*release, path.clone()));
                }
                What::Module(..) => {}
                What::Bad { code, reason } => listing.skipped.push(Skipped {
                    file: path.clone(),
                    code,
                    reason: reason.clone(),
                }),
            }
        }
        listing.candidates.sort_by(|one, other| other.cmp(one));
        listing
    }
}

fn look(file: &Path) -> What {
    let bytes = match path::read(file, LIMIT) {
        Ok(bytes) => bytes,
        Err(error) => {
            return What::Bad {
                code: error.code(),
                reason: error.to_string(),
            };
        }
    };
    let manifest = Sealed::parse(&bytes).map(|sealed| sealed.manifest().clone());
    match manifest {
        Ok(manifest) => What::Module(manifest.name, manifest.release),
        Err(refused) => What::bad(&refused),
    }
}

impl What {
    fn bad(refused: &Refused) -> What {
        What::Bad {
            code: refused.code(),
            reason: refused.to_string(),
        }
    }
}
