//! The memory of a host: accepted releases, floors, approvals and roots, which nobody can roll
//! back. The host and the commands load it from a [`StateFile`].

mod encoding;
mod file;
mod files;

use std::collections::{BTreeMap, BTreeSet};

pub use file::{StateError, StateFile};
pub use files::{Files, System, beside, follow_links, replace, replace_shared, write_new};

use crate::announcement::Announcement;
use crate::policy::Approval;
use crate::proof::{Proof, Verified};
use crate::{Capabilities, Digest, Manifest, Name, Refused, Release, Root};

/// The most names: more than one host ever loads.
pub(crate) const MAX_NAMES: usize = 1024;

/// The knowledge of a host from everything that it has accepted. Nothing in it is rolled back,
/// unless the user requests it by name: [`revoke`](State::revoke), [`forget`](State::forget).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    root: Option<Root>,
    greatest_time: u64,
    names: BTreeMap<Name, Known>,
}

/// The knowledge about one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The newest release accepted, and the SHA-256 of its body.
    pub accepted: Option<(Release, Digest)>,
    /// The oldest release that is still accepted.
    pub floor: Option<Release>,
    /// The capabilities that the user has approved.
    pub approved: Option<Capabilities>,
    /// The newest release that a freshness note has announced, and the time of the note.
    pub announced: Option<(Release, u64)>,
}

impl State {
    /// Returns the newest version of the root that it has seen; `None` before the first module.
    pub fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// Returns the knowledge about a name.
    pub fn known(&self, name: &Name) -> Option<&Known> {
        self.names.get(name)
    }

    /// Returns all names and the knowledge about them.
    pub fn names(&self) -> impl Iterator<Item = (&Name, &Known)> {
        self.names.iter()
    }

    /// Returns the greatest time that the clock has shown when something was accepted, in seconds
    /// since 1970.
    pub fn greatest_time(&self) -> u64 {
        self.greatest_time
    }

    /// Returns the given root, or a newer version of it if one has been seen. Fails if it is
    /// another root.
    pub fn newest_root(&self, given: &Root) -> Result<Root, Refused> {
        match &self.root {
            Some(known) if known.id() != given.id() => Err(Refused::UnknownRoot {
                found: given.id(),
                expected: known.id(),
            }),
            Some(known) if known.record().version > given.record().version => Ok(known.clone()),
            _ => Ok(given.clone()),
        }
    }

    /// Records a module that has been verified and, if the host tries modules out first, has
    /// started. An allowed downgrade leaves the newest release unchanged.
    pub fn accept(&mut self, verified: &Verified<'_>) {
        if let Some(proof) = verified.proof() {
            self.accept_proof(proof, verified.time());
        }
    }

    /// Records a module as [`accept`](State::accept) does, after its bytes are dropped: `proof` and
    /// `time` are [`Verified::proof`] and [`Verified::time`].
    pub fn accept_proof(&mut self, proof: &Proof, time: u64) {
        self.greatest_time = self.greatest_time.max(time);
        self.adopt(&proof.root);
        let manifest = &proof.manifest;
        let known = self.names.entry(manifest.name.clone()).or_default();
        if known
            .accepted
            .is_none_or(|(newest, _)| newest < manifest.release)
        {
            known.accepted = Some((manifest.release, manifest.body_sha256));
        }
        if proof.approval == Approval::Given {
            known.approved = Some(manifest.capabilities.clone());
        }
        for (name, floor) in &manifest.floors {
            let known = self.names.entry(name.clone()).or_default();
            known.floor = known.floor.max(Some(*floor));
        }
    }

    /// Returns true if [`accept_proof`](State::accept_proof) would record more than the time: a
    /// release, a floor, an approval or a version of the root that is not known yet. A module with
    /// no such news can run although the state cannot be written.
    pub fn learns_from(&self, proof: &Proof) -> bool {
        let mut after = self.clone();
        after.accept_proof(proof, 0);
        after != *self
    }

    /// Records capabilities that the user approves for a name, loaded or not. Fails if there is no
    /// room for the name.
    pub fn approve(&mut self, name: &Name, approved: Capabilities) -> Result<(), Refused> {
        self.check_names([name])?;
        self.names.entry(name.clone()).or_default().approved = Some(approved);
        Ok(())
    }

    /// Revokes the approval of a name, so that the next load needs a new one. Returns true if there
    /// was one.
    pub fn revoke(&mut self, name: &Name) -> bool {
        let known = self.names.get_mut(name);
        known.is_some_and(|known| known.approved.take().is_some())
    }

    /// Forgets everything about a name, including its floor and newest release, so that any release
    /// of it is accepted again. Returns true if anything was known.
    pub fn forget(&mut self, name: &Name) -> bool {
        self.names.remove(name).is_some()
    }

    /// Records a version of the root if it is newer. It must follow from the trusted one by
    /// [`Root::advance`] or [`Root::follow`]. The version counts even if the module that brought it
    /// is refused.
    pub fn adopt(&mut self, root: &Root) {
        let newer = self
            .root
            .as_ref()
            .is_none_or(|known| known.record().version < root.record().version);
        if newer {
            self.root = Some(root.clone());
        }
    }

    /// Records a [verified](crate::Note::verify) note. Returns true if it was news: a note about an
    /// older release, or about the same release at an earlier time, is not.
    pub fn announce(&mut self, announcement: &Announcement) -> Result<bool, Refused> {
        self.check_names([&announcement.name])?;
        let known = self.names.entry(announcement.name.clone()).or_default();
        let said = Some((announcement.release, announcement.time));
        let is_news = known.announced < said;
        known.announced = known.announced.max(said);
        Ok(is_news)
    }

    /// Checks that there is room for the names of this module.
    pub(crate) fn check_room(&self, manifest: &Manifest) -> Result<(), Refused> {
        self.check_names(manifest.floors.keys().chain([&manifest.name]))
    }

    fn check_names<'n>(&self, names: impl IntoIterator<Item = &'n Name>) -> Result<(), Refused> {
        let new: BTreeSet<&Name> = names
            .into_iter()
            .filter(|name| !self.names.contains_key(*name))
            .collect();
        match new.first() {
            Some(name) if self.names.len() + new.len() > MAX_NAMES => Err(Refused::StateFull {
                name: (*name).clone(),
                limit: MAX_NAMES,
            }),
            _ => Ok(()),
        }
    }
}
