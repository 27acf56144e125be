//! The terms of updates: a downloaded module is judged like any other that is loaded. `updates`
//! asks for them.

use watm_seal::{Manifest, private};
use watm_update::Terms;

use super::{LoadOptions, Trust};
use crate::Error;

impl Trust {
    /// Returns the terms as of now. Creates the folder of the state if it is missing.
    #[doc(hidden)]
    pub fn terms(&self, options: &LoadOptions) -> Result<Terms, Error> {
        let file = self.store.file()?.ok_or_else(|| {
            Error::Options(
                "modules shipped with a program are updated with that program; only modules under \
                 a root that the user trusts can be updated"
                    .to_owned(),
            )
        })?;
        if let Some(folder) = file.path().parent() {
            private::create_directory(folder).map_err(|source| Error::File {
                path: folder.to_owned(),
                source,
            })?;
        }
        let state = self.store.load()?;
        let root = self.root(&state).ok_or_else(|| Error::Untrusted {
            module: "updates".to_owned(),
            code: "no-root",
            reason: "no root is trusted yet; trust one with `watm trust ROOT`".to_owned(),
        })?;
        let accepted = state
            .names()
            .filter_map(|(name, known)| Some((name.clone(), known.accepted?.0)));
        let mut policy = self.policy(options, accepted);
        let granted = options.name.as_ref().and_then(|name| self.grants.of(name));
        if let Some(granted) = granted {
            policy.approved = granted.approved.clone();
        }
        Ok(Terms {
            root: root.clone(),
            state: file,
            policy,
        })
    }

    /// Returns true if this release has run, and no newer one has.
    #[doc(hidden)]
    pub fn has_accepted(&self, manifest: &Manifest) -> bool {
        let state = self.store.load().unwrap_or_default();
        let accepted = state.known(&manifest.name).and_then(|known| known.accepted);
        accepted == Some((manifest.release, manifest.body_sha256))
    }
}
