//! The terms by which updates are verified, the same by which the host loads modules.

use std::time::SystemTime;

use watm_seal::state::StateFile;
use watm_seal::{
    Approval, Digest, Floor, Manifest, Policy, Refused, Release, Root, Sealed, State, Warning,
    check_running, verify,
};

use crate::fault::Fault;
use crate::outcome::Module;

/// The terms by which a module is verified, the same as when its host loads it.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The trusted root. A newer version in the state takes its place.
    pub root: Root,
    /// The state of the host. An update records a newer root and the content of a freshness note.
    /// The host itself records acceptance, once the module runs.
    pub state: StateFile,
    /// The requirements of the host.
    pub policy: Policy,
}

/// A judged file.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The module; `None` if it is not sealed, as the policy allows.
    pub(crate) module: Option<Module>,
    pub(crate) warnings: Vec<Warning>,
}

pub(crate) enum Verdict {
    /// The file is in place already.
    InPlace,
    /// The file may replace this release, or be the first.
    Good(Option<Release>),
    /// The file requests these capabilities in addition.
    NeedsApproval(Vec<String>),
}

impl Terms {
    /// Judges whether this file may replace `current`, which was verified when it was put there. A
    /// newer root that a valid file brings is trusted from now on.
    pub(crate) fn judge(&self, file: &[u8], current: Option<&[u8]>) -> Result<Judged, Fault> {
        let state = self.state.load()?;
        let now = now();
        let verified = match verify(file, &self.root, &state, &self.policy, now) {
            Ok(verified) => verified,
            Err(Refused::NeedsApproval { more, .. }) if current != Some(file) => {
                return self.judge_pending(file, current, &state, more);
            }
            Err(refused) => return Err(refused.into()),
        };
        let mut warnings = verified.warnings().to_vec();
        let Some(proof) = verified.proof() else {
            return Ok(Judged {
                verdict: in_place_or_good(file, current, None),
                module: None,
                warnings,
            });
        };
        let previous = self.previous(&proof.manifest, current)?;
        if proof.root.record().version > self.newest_root(&state)?.record().version {
            self.state.update(|state| state.adopt(&proof.root))?;
        }
        if current == Some(file) {
            // The module runs already.
            warnings = check_running(&proof.manifest, &state, &self.policy, now);
        }
        Ok(Judged {
            verdict: in_place_or_good(file, current, previous),
            module: Some(module(file, &proof.manifest)),
            warnings,
        })
    }

    /// Judges a file that would be valid with more capabilities approved.
    fn judge_pending(
        &self,
        file: &[u8],
        current: Option<&[u8]>,
        state: &State,
        more: Vec<String>,
    ) -> Result<Judged, Fault> {
        let policy = Policy {
            approval: Approval::Given,
            ..self.policy.clone()
        };
        let verified = verify(file, &self.root, state, &policy, now())?;
        let proof = verified.proof().ok_or(Refused::Unsealed)?;
        self.previous(&proof.manifest, current)?;
        Ok(Judged {
            verdict: Verdict::NeedsApproval(more),
            module: Some(module(file, &proof.manifest)),
            warnings: verified.warnings().to_vec(),
        })
    }

    /// Records the user's approval of this file's capabilities, if it has that release and is
    /// otherwise valid.
    pub(crate) fn approve(&self, file: &[u8], release: Release) -> Result<(), Fault> {
        let state = self.state.load()?;
        let judged = self.judge_pending(file, None, &state, Vec::new())?;
        let manifest = judged.module.ok_or(Refused::Unsealed)?.manifest;
        if manifest.release != release {
            return Err(Fault::from(Refused::WrongName {
                name: manifest.name,
                field: "release",
                found: manifest.release.to_string(),
                expected: release.to_string(),
            }));
        }
        let approved = manifest.capabilities;
        self.state
            .update(|state| state.approve(&manifest.name, approved))??;
        Ok(())
    }

    /// Returns the release in place, which is a floor as well: the host may not have loaded it yet,
    /// so its state does not know it. Without a name in the policy, the name in place is required.
    fn previous(
        &self,
        manifest: &Manifest,
        current: Option<&[u8]>,
    ) -> Result<Option<Release>, Refused> {
        let Some(current) = current.and_then(|current| self.in_place(current)) else {
            return Ok(None);
        };
        let (name, release) = (&manifest.name, manifest.release);
        if current.name != *name {
            return match self.policy.name {
                Some(_) => Ok(None),
                None => Err(Refused::WrongName {
                    name: name.clone(),
                    field: "name",
                    found: name.to_string(),
                    expected: current.name.to_string(),
                }),
            };
        }
        let downgrade = self.policy.allow_downgrade.as_ref();
        let is_allowed = downgrade.is_some_and(|(of, to)| of == name && *to == release);
        if release < current.release && !is_allowed {
            return Err(Refused::Rollback {
                name: name.clone(),
                found: release,
                least: current.release,
                floor: Floor::Installed,
            });
        }
        if release == current.release && manifest.body_sha256 != current.body_sha256 {
            let name = name.clone();
            return Err(Refused::Equivocation { name, release });
        }
        Ok(Some(current.release))
    }

    /// Returns the manifest of the file in place, if it is undamaged and of this root. It is a
    /// floor even if it has expired or its signers have been revoked.
    pub(crate) fn in_place(&self, current: &[u8]) -> Option<Manifest> {
        let sealed = Sealed::parse(current).ok()?;
        let manifest = sealed.manifest();
        let is_whole = sealed.check_body().is_ok();
        (is_whole && manifest.root == self.root.id()).then(|| manifest.clone())
    }

    pub(crate) fn newest_root(&self, state: &State) -> Result<Root, Refused> {
        state.newest_root(&self.root)
    }
}

fn in_place_or_good(file: &[u8], current: Option<&[u8]>, previous: Option<Release>) -> Verdict {
    match current == Some(file) {
        true => Verdict::InPlace,
        false => Verdict::Good(previous),
    }
}

fn module(file: &[u8], manifest: &Manifest) -> Module {
    Module {
        manifest: manifest.clone(),
        sha256: Digest::of(file),
    }
}

/// Returns the clock's time, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
