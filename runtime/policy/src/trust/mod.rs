//! Trust in the signers of modules, and the state of accepted modules. The engine verifies every
//! module by it.

mod built_in;
mod load;
mod store;
#[cfg(test)]
mod tests;
#[cfg(feature = "update")]
mod update;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use watm_seal::{
    Approval, Capabilities, Digest, Name, Policy, Proof, Refused, Release, Root, Sealed, State,
    Warning, check_running, verify,
};

pub use built_in::BuiltIn;
pub use load::LoadOptions;
pub use watch::watch;

use crate::grant::Granted;
use crate::inspection::worlds;
use crate::{Error, Grants, LastUse};
use store::Store;

/// The signers whose modules an engine loads, and the state of accepted modules.
///
/// A module is loaded if its seal is valid under the trusted root, if it is not older than an
/// accepted release, and if its requests are approved: [`verify`] has the whole list. The buffer
/// that is compiled is the one that was verified.
///
/// A module's acceptance is written to the state once it has started, so that one that does not
/// start does not lock out the former one. A module that adds nothing to the state runs even if the
/// state cannot be written, with a warning. The readable part of the state applies in any case.
#[derive(Debug, Clone)]
pub struct Trust {
    store: Store,
    root: Option<Root>,
    floors: BTreeMap<Name, Release>,
    approval: Approval,
    unsealed: bool,
    grants: Grants,
}

impl Trust {
    /// Trusts what the user has trusted with `watm trust`: the state is in the user's folder for
    /// states (`$XDG_STATE_HOME/watm/trust`, `~/.local/state/watm/trust`; on Windows in
    /// `%APPDATA%`). The default.
    pub fn of_user() -> Trust {
        Trust::new(Store::User)
    }

    /// Trusts as [`of_user`](Trust::of_user), with the state in this file. Its folder is made when
    /// there is something to write.
    pub fn at(state: impl Into<PathBuf>) -> Trust {
        Trust::new(Store::File(state.into()))
    }

    /// Trusts this root, for modules that come with the program itself. They are approved and as
    /// new as the program is, so nothing is kept beyond the process.
    pub fn packaged(root: Root) -> Trust {
        Trust {
            root: Some(root),
            approval: Approval::Given,
            ..Trust::new(Store::in_memory())
        }
    }

    /// Sets the root that came with this release of the program, for users who have trusted none,
    /// and the oldest releases that it accepts. Both apply even if the state is lost. A newer
    /// version of the root in the state takes its place, and so does another root there.
    pub fn built_in(mut self, root: Option<Root>, floors: BTreeMap<Name, Release>) -> Trust {
        self.root = root;
        self.floors = floors;
        self
    }

    /// Judges modules by a copy of the state, and writes nothing: no release counts as run, and no usage
    /// is recorded. For tests of modules. Fails if the state cannot be read.
    pub fn for_trial(self) -> Result<Trust, Error> {
        Ok(Trust {
            store: self.store.copied()?,
            ..self
        })
    }

    /// Allows modules without a seal, for development. Status and logs show them as unsealed.
    /// Default: no.
    pub fn allow_unsealed(mut self, allowed: bool) -> Trust {
        self.unsealed = allowed;
        self
    }

    /// Sets what the user has granted, by name of the module. Default: no grants, so that
    /// everything that a module asks for must be approved.
    pub fn grants(mut self, grants: Grants) -> Trust {
        self.grants = grants;
        self
    }

    /// Returns the usage of the last run of a module of this name on this machine. `None` if none
    /// has run, or if the record cannot be read.
    pub fn last_use(&self, name: &Name) -> Option<LastUse> {
        LastUse::read(&self.store.path()?, name).ok()?
    }

    /// Returns what the module in `bytes` may have once it is loaded: what its seal asks for,
    /// limited to what the user granted to its name. `None` if it has no seal, and there is no such
    /// limit. Fails as loading it would; compiles and writes nothing. `module` stands for it in
    /// errors.
    pub fn would_grant(
        &self,
        module: &str,
        bytes: &[u8],
        options: &LoadOptions,
    ) -> Result<Option<Capabilities>, Error> {
        Ok(self.verify(module, bytes, options)?.granted.together())
    }

    /// Returns the state's file in the user's folder for states; `None` if the user has no such
    /// folder.
    pub fn user_state() -> Option<PathBuf> {
        store::user_path()
    }

    fn new(store: Store) -> Trust {
        Trust {
            store,
            root: None,
            floors: BTreeMap::new(),
            approval: Approval::Recorded,
            unsealed: false,
            grants: Grants::default(),
        }
    }

    /// Verifies these bytes, and returns the proof if they may be loaded.
    #[doc(hidden)]
    pub fn verify(&self, module: &str, bytes: &[u8], options: &LoadOptions) -> Result<Seal, Error> {
        let untrusted = |refused: Refused| Error::Untrusted {
            module: module.to_owned(),
            code: refused.code(),
            reason: match refused {
                Refused::NeedsApproval { .. } => {
                    format!("{refused}; approve it with `watm trust --approve FILE`")
                }
                other => other.to_string(),
            },
        };
        if let Some(open) = self.store.writable_by_everybody() {
            tracing::warn!(
                target: "watm::trust",
                "{0} is world-writable: any user could choose which roots are trusted and which \
                 releases run; run `chmod o-w {0}`",
                open.display()
            );
        }
        let state = self.store.load()?;
        let sealed = Sealed::parse(bytes);
        let granted = sealed
            .as_ref()
            .ok()
            .and_then(|sealed| self.grants.of(&sealed.manifest().name));
        let mut policy = self.policy(
            options,
            state
                .names()
                .filter_map(|(name, known)| Some((name.clone(), known.accepted?.0))),
        );
        if let Some(granted) = granted {
            policy.approved = granted.approved.clone();
        }
        let Some(root) = self.root(&state) else {
            // Only a module with a seal needs a root.
            return match sealed {
                Err(Refused::Unsealed) if policy.allow_unsealed => {
                    let sha256 = Digest::of(bytes);
                    if !policy.pins.is_empty() && !policy.pins.contains(&sha256) {
                        return Err(untrusted(Refused::NotPinned { found: sha256 }));
                    }
                    Ok(Seal {
                        proof: None,
                        warnings: vec![Warning::Unsealed],
                        time: now(),
                        trust: self.clone(),
                        granted: Granted::default(),
                        accepted: AtomicBool::new(false),
                    })
                }
                Err(refused) => Err(untrusted(refused)),
                Ok(_) => Err(Error::Untrusted {
                    module: module.to_owned(),
                    code: "no-root",
                    reason:
                        "is sealed, but no root is trusted yet; trust one with `watm trust ROOT`"
                            .to_owned(),
                }),
            };
        };
        let verified = verify(bytes, root, &state, &policy, now()).map_err(untrusted)?;
        let ceiling = verified.proof().map(|proof| &proof.manifest.capabilities);
        Ok(Seal {
            granted: Granted::new(ceiling, granted.map(|granted| &granted.most)),
            proof: verified.proof().cloned(),
            warnings: verified.warnings().to_vec(),
            time: verified.time(),
            trust: self.clone(),
            accepted: AtomicBool::new(false),
        })
    }

    /// Returns the root that applies: the program's own, unless the user trusts another. A newer
    /// version in the state takes its place.
    fn root<'a>(&'a self, state: &'a State) -> Option<&'a Root> {
        match (state.root(), &self.root) {
            (Some(known), Some(own)) if known.id() == own.id() => Some(own),
            (Some(known), _) => Some(known),
            (None, own) => own.as_ref(),
        }
    }

    /// Returns true if unsealed modules are allowed.
    #[doc(hidden)]
    pub fn allows_unsealed(&self, options: &LoadOptions) -> bool {
        self.unsealed || options.unsealed
    }

    fn policy(
        &self,
        options: &LoadOptions,
        present: impl Iterator<Item = (Name, Release)>,
    ) -> Policy {
        Policy {
            name: options.name.clone(),
            worlds: worlds(),
            role: options.role,
            channel: options.channel.clone(),
            audiences: options.audiences.clone(),
            host: env!("CARGO_PKG_VERSION").parse().ok(),
            config_schema: options.config_schema,
            floors: self.floors.clone(),
            present: present.collect(),
            allow_downgrade: options.name.clone().zip(options.allow_downgrade),
            pins: options.pins.clone(),
            approval: match options.approve {
                true => Approval::Given,
                false => self.approval,
            },
            allow_unsealed: self.allows_unsealed(options),
            ..Policy::default()
        }
    }
}

impl Default for Trust {
    fn default() -> Trust {
        Trust::of_user()
    }
}

/// The result of verifying a module when it was loaded.
#[derive(Debug)]
pub struct Seal {
    /// The proof; `None` for an unsealed module that was allowed.
    pub proof: Option<Proof>,
    warnings: Vec<Warning>,
    time: u64,
    trust: Trust,
    /// The limits of its seal and of its grant.
    pub granted: Granted,
    accepted: AtomicBool,
}

impl Seal {
    /// Returns the warnings at this time.
    #[doc(hidden)]
    pub fn warnings(&self, now: u64) -> Vec<Warning> {
        let Some(proof) = &self.proof else {
            return self.warnings.clone();
        };
        // A state that cannot be read now was readable when the module was loaded.
        let state = self.trust.store.load().unwrap_or_default();
        let downgrade = |warning: &&Warning| matches!(warning, Warning::Downgrade { .. });
        let mut warnings: Vec<Warning> = self.warnings.iter().filter(downgrade).cloned().collect();
        warnings.extend(check_running(
            &proof.manifest,
            &state,
            &Policy::default(),
            now,
        ));
        warnings
    }

    /// Returns the floor that has been raised above this module since it was loaded, if any.
    #[doc(hidden)]
    pub fn floor_above(&self) -> Option<Release> {
        let manifest = &self.proof.as_ref()?.manifest;
        // A state that cannot be read now was readable when the module was loaded.
        let state = self.trust.store.load().unwrap_or_default();
        let known = state.known(&manifest.name).and_then(|known| known.floor);
        let own = self.trust.floors.get(&manifest.name).copied();
        known.max(own).filter(|floor| *floor > manifest.release)
    }

    /// Returns the path of the state, beside which usage is recorded; `None` if the user has no
    /// folder for states.
    #[doc(hidden)]
    pub fn state_path(&self) -> Option<PathBuf> {
        self.trust.store.path()
    }

    /// Returns true if the acceptance is written, or need not be.
    #[doc(hidden)]
    pub fn is_remembered(&self) -> bool {
        self.proof.is_none() || self.accepted.load(Ordering::Relaxed)
    }

    /// Checks that the module's acceptance could be written now.
    #[doc(hidden)]
    pub fn check_memory(&self) -> Result<(), Error> {
        match &self.proof {
            Some(proof) if !self.is_remembered() => self.trust.store.check_room(proof),
            _ => Ok(()),
        }
    }

    /// Writes the module's acceptance to the state, once: it has started.
    #[doc(hidden)]
    pub fn accept(&self) -> Result<(), Error> {
        if let Some(proof) = &self.proof
            && !self.accepted.load(Ordering::Relaxed)
        {
            self.trust.store.accept(proof, self.time)?;
            self.accepted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
