//! Verification of sealed modules against a root, a state and a policy. Hosts call it before they
//! compile a module.

use std::collections::BTreeMap;

use crate::clock;
use crate::policy::{Approval, Policy, Warning};
use crate::proof::{Proof, Verified};
use crate::refused::Floor;
use crate::root::{Delegation, Purpose, Root, RootRecord};
use crate::state::State;
use crate::{Digest, Manifest, ModuleRole, Name, PublicKey, Refused, Release, Sealed};

/// Verifies that a file may be loaded, before anything of it is compiled or run.
///
/// `root` is the host's; a newer version of it in `state` takes its place. `now` is the clock, in
/// seconds since 1970. The first step that fails is the error:
///
/// 1. the file is within its bounds, and its seal parses;
/// 2. it is one of those that are pinned;
/// 3. the versions of the root that it brings follow from the trusted one, and the last has not
///    expired;
/// 4. every signature is good;
/// 5. enough keys of a delegation for this name have signed, and its ceiling is kept;
/// 6. the content is the signed content;
/// 7. it is the requested module, and this host can run it;
/// 8. it is valid at this time;
/// 9. it is not older than the floors and the release accepted before;
/// 10. the modules that it requires are present;
/// 11. the capabilities that it requests are approved.
///
/// Nothing is changed. Once the module runs, [`State::accept`] records the outcome.
pub fn verify<'a>(
    file: &'a [u8],
    root: &Root,
    state: &State,
    policy: &Policy,
    now: u64,
) -> Result<Verified<'a>, Refused> {
    let verified = verify_alone(file, root, state, policy, now)?;
    if let Some(proof) = &verified.proof {
        check_requires(&proof.manifest, &policy.present)?;
    }
    Ok(verified)
}

/// Verifies modules that belong together, as [`verify`] does for one. Each counts as present for
/// the others, and all are refused if one is. Each has its own policy.
pub fn verify_set<'a>(
    files: &[(&'a [u8], &Policy)],
    root: &Root,
    state: &State,
    now: u64,
) -> Result<Vec<Verified<'a>>, Refused> {
    let mut state = state.clone();
    for (file, policy) in files {
        state.accept(&verify_alone(file, root, &state, policy, now)?);
    }
    // A second pass, since one module may bring a newer root or a floor for another.
    let set = files
        .iter()
        .map(|(file, policy)| verify_alone(file, root, &state, policy, now))
        .collect::<Result<Vec<_>, _>>()?;
    let members: BTreeMap<Name, Release> = set
        .iter()
        .filter_map(|verified| verified.proof.as_ref())
        .map(|proof| (proof.manifest.name.clone(), proof.manifest.release))
        .collect();
    for (verified, (_, policy)) in set.iter().zip(files) {
        if let Some(proof) = &verified.proof {
            let mut present = policy.present.clone();
            present.extend(members.clone());
            check_requires(&proof.manifest, &present)?;
        }
    }
    Ok(set)
}

/// Returns the warnings for a running module: it has expired or soon will, or a newer release has
/// been announced.
pub fn check_running(
    manifest: &Manifest,
    state: &State,
    policy: &Policy,
    now: u64,
) -> Vec<Warning> {
    let (time, clock) = clock::judge(now, state.greatest_time());
    clock
        .into_iter()
        .chain(clock::expiry(manifest.expires, time, policy.warn_before))
        .chain(outdated(manifest, state))
        .collect()
}

fn verify_alone<'a>(
    file: &'a [u8],
    root: &Root,
    state: &State,
    policy: &Policy,
    now: u64,
) -> Result<Verified<'a>, Refused> {
    let sealed = match Sealed::parse(file) {
        Err(Refused::Unsealed) if policy.allow_unsealed => None,
        other => Some(other?),
    };
    let sha256 = Digest::of(file);
    if !policy.pins.is_empty() && !policy.pins.contains(&sha256) {
        return Err(Refused::NotPinned { found: sha256 });
    }
    let Some(sealed) = sealed else {
        return Ok(Verified {
            file,
            sha256,
            proof: None,
            warnings: vec![Warning::Unsealed],
            time: now,
        });
    };
    let manifest = sealed.manifest();
    let (time, warning) = clock::judge(now, state.greatest_time());
    let mut warnings: Vec<Warning> = warning.into_iter().collect();

    let root = newest_root(&sealed, root, state)?;
    check_root_expiry(root.record(), time)?;
    let signers: Vec<PublicKey> = sealed.signatures()?.keys().collect();
    let (delegation, signers) = find_delegation(manifest, root.record(), &signers)?;
    sealed.check_body()?;
    check_wanted(manifest, policy)?;
    check_time(manifest, time)?;
    warnings.extend(clock::expiry(manifest.expires, time, policy.warn_before));
    warnings.extend(check_floors(manifest, state, policy)?);
    warnings.extend(outdated(manifest, state));
    check_approval(manifest, state, policy)?;
    state.check_room(manifest)?;
    Ok(Verified {
        file,
        sha256,
        proof: Some(Proof {
            manifest: manifest.clone(),
            root,
            delegation,
            signers,
            approval: policy.approval,
        }),
        warnings,
        time: now,
    })
}

fn newest_root(sealed: &Sealed<'_>, root: &Root, state: &State) -> Result<Root, Refused> {
    let root = state.newest_root(root)?;
    let found = sealed.manifest().root;
    if found != root.id() {
        let expected = root.id();
        return Err(Refused::UnknownRoot { found, expected });
    }
    root.follow(sealed.chain())
}

pub(crate) fn check_root_expiry(record: &RootRecord, time: u64) -> Result<(), Refused> {
    match time < record.expires {
        true => Ok(()),
        false => Err(Refused::RootExpired {
            version: record.version,
            expired: record.expires,
        }),
    }
}

/// Finds the delegation that this module is signed under, and those of its keys that have signed.
fn find_delegation(
    manifest: &Manifest,
    root: &RootRecord,
    signers: &[PublicKey],
) -> Result<(Name, Vec<PublicKey>), Refused> {
    let candidates = check_delegations(Purpose::Seal, &manifest.name, root, signers)?;
    let mut first_fault = None;
    for (delegation, valid) in candidates {
        match check_ceiling(manifest, root, delegation) {
            Ok(()) => return Ok((delegation.name.clone(), valid)),
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    Err(first_fault.unwrap_or_else(|| no_delegation(Purpose::Seal, &manifest.name)))
}

/// Returns the delegations for this purpose and name of which enough keys have signed. Fails with
/// the reason if there is none.
pub(crate) fn check_delegations<'r>(
    purpose: Purpose,
    name: &Name,
    root: &'r RootRecord,
    signers: &[PublicKey],
) -> Result<Vec<(&'r Delegation, Vec<PublicKey>)>, Refused> {
    let of_purpose = || {
        root.delegations
            .iter()
            .filter(|delegation| delegation.purpose == purpose)
    };
    let mut met = Vec::new();
    // Among the delegations that are not met, the one that lacks least.
    let mut closest: Option<(usize, &Delegation)> = None;
    for delegation in of_purpose().filter(|delegation| delegation.has(name)) {
        // No key of a delegation is revoked: such a record does not parse.
        let valid: Vec<PublicKey> = signers
            .iter()
            .filter(|key| delegation.keys.contains(key))
            .copied()
            .collect();
        if valid.len() >= usize::from(delegation.threshold) {
            met.push((delegation, valid));
        } else if closest.is_none_or(|(most, _)| valid.len() > most) {
            closest = Some((valid.len(), delegation));
        }
    }
    if !met.is_empty() {
        return Ok(met);
    }
    let elsewhere =
        of_purpose().find(|delegation| signers.iter().any(|key| delegation.keys.contains(key)));
    Err(match (closest, elsewhere) {
        (None | Some((0, _)), Some(other)) => Refused::Delegation {
            name: name.clone(),
            reason: other.other_names(),
        },
        (None, None) => no_delegation(purpose, name),
        (Some((valid, delegation)), _) => {
            let needed = usize::from(delegation.threshold);
            match signers.iter().find(|key| root.revoked.contains(key)) {
                Some(key) => Refused::Revoked {
                    name: name.clone(),
                    key: *key,
                    delegation: delegation.name.clone(),
                    needed,
                },
                None => Refused::Threshold {
                    name: name.clone(),
                    delegation: delegation.name.clone(),
                    valid,
                    needed,
                },
            }
        }
    })
}

fn no_delegation(purpose: Purpose, name: &Name) -> Refused {
    Refused::Delegation {
        name: name.clone(),
        reason: format!(
            "no delegation of the root covers this name; {}",
            purpose.needed()
        ),
    }
}

fn check_ceiling(
    manifest: &Manifest,
    root: &RootRecord,
    delegation: &Delegation,
) -> Result<(), Refused> {
    let refuse = |reason| {
        Err(Refused::Delegation {
            name: manifest.name.clone(),
            reason,
        })
    };
    check_epoch(&manifest.name, manifest.release, root)?;
    let beyond = manifest.capabilities.beyond(&delegation.ceiling);
    if !beyond.is_empty() {
        let whose = &delegation.name;
        return refuse(format!(
            "beyond the ceiling of {whose}: {}",
            beyond.join(", ")
        ));
    }
    // Without this check one team could lock out another's modules.
    for (name, floor) in &manifest.floors {
        if !delegation.has(name) {
            let whose = &delegation.name;
            return refuse(format!(
                "has a floor for {name}, which {whose} may not sign"
            ));
        }
        check_epoch(&manifest.name, *floor, root)?;
    }
    Ok(())
}

pub(crate) fn check_epoch(name: &Name, release: Release, root: &RootRecord) -> Result<(), Refused> {
    match release.epoch <= root.epoch {
        true => Ok(()),
        false => Err(Refused::Delegation {
            name: name.clone(),
            reason: format!(
                "release {release} is beyond epoch {}; only the root raises the epoch",
                root.epoch
            ),
        }),
    }
}

fn check_wanted(manifest: &Manifest, policy: &Policy) -> Result<(), Refused> {
    let wrong = |field, found: String, expected: String| {
        Err(Refused::WrongName {
            name: manifest.name.clone(),
            field,
            found,
            expected,
        })
    };
    if let Some(name) = &policy.name
        && *name != manifest.name
    {
        return wrong("name", manifest.name.to_string(), name.to_string());
    }
    let runs = policy.worlds.iter().any(|own| own.runs(&manifest.world));
    if !policy.worlds.is_empty() && !runs {
        return wrong("world", manifest.world.to_string(), list(&policy.worlds));
    }
    if let Some(role) = policy.role
        && !manifest.roles.contains(&role)
    {
        let roles: Vec<ModuleRole> = manifest.roles.iter().copied().collect();
        return wrong("role", list(&roles), role.to_string());
    }
    if let Some(channel) = &policy.channel
        && *channel != manifest.channel
    {
        return wrong("channel", manifest.channel.to_string(), channel.to_string());
    }
    if let Some(audience) = &manifest.audience
        && !policy.audiences.contains(audience)
    {
        let own: Vec<&Name> = policy.audiences.iter().collect();
        let own = match own.is_empty() {
            true => "all hosts".to_owned(),
            false => list(&own),
        };
        return wrong("audience", audience.to_string(), own);
    }
    if let Some(schema) = policy.config_schema
        && schema != manifest.config_schema
    {
        let found = manifest.config_schema.to_string();
        return wrong("config-schema", found, schema.to_string());
    }
    match &policy.host {
        Some(host) if *host < manifest.min_host => Err(Refused::HostTooOld {
            name: manifest.name.clone(),
            needed: manifest.min_host.clone(),
            found: host.clone(),
        }),
        _ => Ok(()),
    }
}

fn list(items: &[impl ToString]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(" or ")
}

fn check_time(manifest: &Manifest, time: u64) -> Result<(), Refused> {
    if time < manifest.not_before {
        return Err(Refused::NotYetValid {
            name: manifest.name.clone(),
            from: manifest.not_before,
            now: time,
        });
    }
    match time < manifest.expires {
        true => Ok(()),
        false => Err(Refused::Expired {
            name: manifest.name.clone(),
            expired: manifest.expires,
            now: time,
        }),
    }
}

/// Checks that it is not older than allowed. Returns a warning if it is older than the newest.
fn check_floors(
    manifest: &Manifest,
    state: &State,
    policy: &Policy,
) -> Result<Option<Warning>, Refused> {
    let (name, release) = (&manifest.name, manifest.release);
    let known = state.known(name);
    let rollback = |least, floor| {
        Err(Refused::Rollback {
            name: name.clone(),
            found: release,
            least,
            floor,
        })
    };
    if let Some(least) = policy.floors.get(name)
        && release < *least
    {
        return rollback(*least, Floor::Host);
    }
    if let Some(least) = known.and_then(|known| known.floor)
        && release < least
    {
        return rollback(least, Floor::Module);
    }
    let Some((newest, body)) = known.and_then(|known| known.accepted) else {
        return Ok(None);
    };
    if release < newest {
        let allowed = policy.allow_downgrade.as_ref();
        return match allowed.is_some_and(|(of, to)| of == name && *to == release) {
            true => Ok(Some(Warning::Downgrade { release, newest })),
            false => rollback(newest, Floor::Accepted),
        };
    }
    if release == newest && body != manifest.body_sha256 {
        return Err(Refused::Equivocation {
            name: name.clone(),
            release,
        });
    }
    Ok(None)
}

fn outdated(manifest: &Manifest, state: &State) -> Option<Warning> {
    let (newest, _) = state.known(&manifest.name)?.announced?;
    (manifest.release < newest).then_some(Warning::Outdated {
        release: manifest.release,
        newest,
    })
}

fn check_requires(manifest: &Manifest, present: &BTreeMap<Name, Release>) -> Result<(), Refused> {
    for (required, least) in &manifest.requires {
        let found = present.get(required).copied();
        if found.is_none_or(|found| found < *least) {
            return Err(Refused::Requires {
                name: manifest.name.clone(),
                required: required.clone(),
                least: *least,
                found,
            });
        }
    }
    Ok(())
}

fn check_approval(manifest: &Manifest, state: &State, policy: &Policy) -> Result<(), Refused> {
    if policy.approval != Approval::Recorded {
        return Ok(());
    }
    let approved = state
        .known(&manifest.name)
        .and_then(|known| known.approved.clone())
        .unwrap_or_default()
        .or(&policy.approved);
    let more = manifest.capabilities.beyond(&approved);
    match more.is_empty() {
        true => Ok(()),
        false => Err(Refused::NeedsApproval {
            name: manifest.name.clone(),
            more,
        }),
    }
}
