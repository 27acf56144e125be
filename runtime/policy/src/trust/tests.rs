//! Tests of trust on a module that is sealed here: which modules are loaded, under which policy, and what the state keeps
//! of them.

use std::path::Path;
use std::process;

use watm_seal::state::{StateFile, beside};
use watm_seal::{
    DAY, Delegation, Manifest, ModuleRole, PrivateKey, Purpose, RootRecord, SignedRoot, World, seal,
};

use super::*;

/// Returns a root, and a module under it that expires in `days` days.
pub(super) fn sealed(days: u64) -> (Root, Vec<u8>) {
    let root = root(7);
    let sealed = module(&root, days);
    (root, sealed)
}

/// Returns a root, which is another one for each seed.
fn root(seed: u8) -> Root {
    trusted(record(seed), seed)
}

/// Returns the next version of a root of this seed.
fn version_2(root: &Root, seed: u8) -> Root {
    let record = RootRecord {
        version: 2,
        first: Some(root.id()),
        ..record(seed)
    };
    trusted(record, seed)
}

fn trusted(record: RootRecord, seed: u8) -> Root {
    let key = PrivateKey::from_seed(&[seed; 32]);
    let signed = SignedRoot::new(record).and_then(|root| root.sign(&key));
    Root::trust(signed.expect("a possible record")).expect("signed")
}

fn record(seed: u8) -> RootRecord {
    let key = PrivateKey::from_seed(&[seed; 32]);
    RootRecord {
        version: 1,
        first: None,
        epoch: 1,
        expires: now() + 1000 * DAY,
        threshold: 1,
        keys: [key.public()].into(),
        delegations: vec![Delegation {
            name: "release".parse().expect("a name"),
            purpose: Purpose::Seal,
            threshold: 1,
            keys: [key.public()].into(),
            names: ["*".parse().expect("a pattern")].into(),
            ceiling: Capabilities::unlimited(),
        }],
        revoked: [].into(),
    }
}

fn module(root: &Root, days: u64) -> Vec<u8> {
    let manifest = Manifest {
        root: root.id(),
        name: name(),
        world: World::WaterV1,
        roles: [ModuleRole::Dialer].into(),
        release: release("1.1"),
        version: "0.1.0".to_owned(),
        body_length: 0,
        body_sha256: Digest::of(b""),
        not_before: now() - DAY,
        expires: now() + days * DAY,
        channel: "stable".parse().expect("a name"),
        audience: None,
        min_host: "0.1.0".parse().expect("a version"),
        config_schema: 1,
        capabilities: Capabilities::default(),
        floors: [].into(),
        requires: [].into(),
        source_commit: String::new(),
        toolchain: String::new(),
    };
    let key = PrivateKey::from_seed(&[7; 32]);
    seal(BODY, manifest, &[], &[key]).expect("can be sealed")
}

const BODY: &[u8] = b"\0asm\x01\0\0\0";

fn name() -> Name {
    "wireguard".parse().expect("a name")
}

fn release(text: &str) -> Release {
    text.parse().expect("a release")
}

/// Returns the trust with a state in a new file of this name, which has no root.
fn at(test: &str) -> (Trust, StateFile) {
    let path = std::env::temp_dir().join(format!("watm-trust-{}-{test}", process::id()));
    let _ = std::fs::remove_file(&path);
    (Trust::at(&path), StateFile::new(&path))
}

fn code(verified: Result<Seal, Error>) -> &'static str {
    match verified {
        Ok(_) => "accepted",
        Err(Error::Untrusted { code, .. }) => code,
        Err(error) => panic!("{error}"),
    }
}

fn load(trust: &Trust, bytes: &[u8], options: &LoadOptions) -> &'static str {
    code(trust.verify("m.wasm", bytes, options))
}

#[test]
fn a_module_without_a_seal_is_refused_unless_it_is_allowed_and_pinned_if_any_is() {
    let (trust, _) = at("unsealed");
    let options = LoadOptions::default();
    assert_eq!(load(&trust, BODY, &options), "unsealed");
    assert!(!trust.allows_unsealed(&options));
    let by_option = LoadOptions {
        unsealed: true,
        ..LoadOptions::default()
    };
    assert_eq!(load(&trust, BODY, &by_option), "accepted");
    assert!(trust.allows_unsealed(&by_option));
    let allowing = trust.allow_unsealed(true);
    assert_eq!(load(&allowing, BODY, &options), "accepted");
    assert!(allowing.allows_unsealed(&options));
    for (content, expected) in [(BODY, "accepted"), (b"another".as_slice(), "not-pinned")] {
        let pinned = LoadOptions {
            pins: [Digest::of(content)].into(),
            ..LoadOptions::default()
        };
        assert_eq!(load(&allowing, BODY, &pinned), expected);
    }
}

#[test]
fn a_sealed_module_needs_a_root() {
    let (root, sealed) = sealed(30);
    let (trust, _) = at("no root");
    let options = LoadOptions::default();
    assert_eq!(load(&trust, &sealed, &options), "no-root");
    assert_eq!(load(&Trust::packaged(root), &sealed, &options), "accepted");
}

#[test]
fn the_users_root_takes_the_place_of_the_programs() {
    let (own, other) = (root(7), root(8));
    let trust = Trust::packaged(own.clone());
    let chosen = |known: Option<&Root>| {
        let mut state = State::default();
        if let Some(known) = known {
            state.adopt(known);
        }
        trust.root(&state).map(Root::id)
    };
    assert_eq!(chosen(None), Some(own.id()));
    assert_eq!(chosen(Some(&own)), Some(own.id()));
    assert_eq!(chosen(Some(&other)), Some(other.id()));
    assert_eq!(at("root").0.root(&State::default()), None);
    // A newer version of the program's own is kept beside an older one in the state.
    let newer = Trust::packaged(version_2(&own, 7));
    let mut state = State::default();
    state.adopt(&own);
    let found = newer.root(&state).expect("one of both");
    assert_eq!(found.record().version, 2);
}

#[test]
fn the_policy_has_what_was_asked_for() {
    let pin = Digest::of(b"pin");
    let floors: BTreeMap<Name, Release> = [(name(), release("1.0"))].into();
    let trust = at("policy").0.built_in(None, floors.clone());
    let options = LoadOptions {
        name: Some(name()),
        role: Some(ModuleRole::Dialer),
        channel: Some("beta".parse().expect("a name")),
        audiences: ["me".parse().expect("a name")].into(),
        config_schema: Some(3),
        allow_downgrade: Some(release("0.9")),
        pins: [pin].into(),
        approve: true,
        unsealed: true,
        ..LoadOptions::default()
    };
    let present = [(name(), release("1.2"))];
    let policy = trust.policy(&options, present.clone().into_iter());
    assert_eq!(policy.name, options.name);
    assert_eq!(policy.worlds, worlds());
    assert_eq!(policy.role, options.role);
    assert_eq!(policy.channel, options.channel);
    assert_eq!(policy.audiences, options.audiences);
    assert!(policy.host.is_some());
    assert_eq!(policy.config_schema, Some(3));
    assert_eq!(policy.floors, floors);
    assert_eq!(policy.present, present.into_iter().collect());
    assert_eq!(policy.allow_downgrade, Some((name(), release("0.9"))));
    assert_eq!(policy.pins, [pin].into());
    assert_eq!(policy.approval, Approval::Given);
    assert!(policy.allow_unsealed);
    let without = LoadOptions::default();
    let policy = trust.policy(&without, [].into_iter());
    assert_eq!(policy.approval, Approval::Recorded);
    assert!(!policy.allow_unsealed);
    let packaged = Trust::packaged(root(7)).policy(&without, [].into_iter());
    assert_eq!(packaged.approval, Approval::Given);
}

#[test]
fn a_grant_limits_what_the_seal_asks_for() {
    let (root, sealed) = sealed(30);
    let path = std::env::temp_dir().join(format!("watm-trust-grants-{}", process::id()));
    std::fs::write(&path, "[wireguard]\nflows = 1\n").expect("written");
    let grants = Grants::read(&path).expect("grants");
    std::fs::remove_file(&path).expect("removed");
    let trust = Trust::packaged(root).allow_unsealed(true);
    let flows = |trust: &Trust| {
        let seal = trust.verify("m.wasm", &sealed, &LoadOptions::default());
        seal.expect("good").granted.flows(usize::MAX)
    };
    let asked = usize::try_from(Capabilities::default().flows).expect("a number");
    assert_eq!(flows(&trust), asked);
    assert_eq!(flows(&trust.grants(grants)), asked.min(1));
}

#[test]
fn a_programs_own_modules_are_remembered_as_long_as_it_runs() {
    let (root, sealed) = sealed(30);
    let trust = Trust::packaged(root);
    let options = LoadOptions::default();
    let seal = trust.verify("m.wasm", &sealed, &options).expect("good");
    let known = || {
        let state = trust.store.load().expect("in memory");
        state.known(&name()).is_some()
    };
    assert!(!known());
    seal.accept().expect("kept");
    assert!(known());
}

#[cfg(feature = "update")]
#[test]
fn the_last_release_that_has_run_is_known() {
    let (root, sealed) = sealed(30);
    let trust = Trust::packaged(root);
    let options = LoadOptions::default();
    let seal = trust.verify("m.wasm", &sealed, &options).expect("good");
    let manifest = &seal.proof.as_ref().expect("sealed").manifest;
    assert!(!trust.has_accepted(manifest));
    seal.accept().expect("kept");
    assert!(trust.has_accepted(manifest));
    let other = Manifest {
        release: release("1.2"),
        ..manifest.clone()
    };
    assert!(!trust.has_accepted(&other));
}

#[test]
fn an_acceptance_is_written_once_the_module_has_started() {
    let (root, sealed) = sealed(30);
    let (trust, file) = at("acceptance");
    let trust = trust.built_in(Some(root), BTreeMap::new());
    let approve = LoadOptions {
        approve: true,
        ..LoadOptions::default()
    };
    let seal = trust.verify("m.wasm", &sealed, &approve).expect("good");
    let accepted = || {
        let state = file.load().expect("readable");
        state.known(&name()).and_then(|known| known.accepted)
    };
    assert!(!seal.is_remembered());
    seal.check_memory().expect("can be written");
    assert_eq!(accepted(), None);
    seal.accept().expect("written");
    assert!(seal.is_remembered());
    assert_eq!(accepted().map(|it| it.0), Some(release("1.1")));
    assert_eq!(seal.state_path().as_deref(), Some(file.path()));
    let state = seal.trust.store.load().expect("readable");
    assert!(state.known(&name()).is_some());
    // It is written once.
    std::fs::remove_file(file.path()).expect("removed");
    let probe = beside(file.path(), &format!(".probe-{}", process::id()));
    std::fs::create_dir_all(probe.join("full")).expect("created");
    seal.check_memory().expect("nothing to do");
    std::fs::remove_dir_all(&probe).expect("removed");
    seal.accept().expect("nothing to do");
    assert_eq!(accepted(), None);
}

#[test]
fn a_trial_reads_the_state_and_writes_nothing() {
    let (root, sealed) = sealed(30);
    let (trust, file) = at("trial");
    file.update(|state| state.adopt(&root)).expect("written");
    let trial = trust.for_trial().expect("readable");
    let before = file.load().expect("readable");
    let seal = trial
        .verify("m.wasm", &sealed, &LoadOptions::default())
        .expect("the root is in the state");
    seal.accept().expect("kept");
    assert_eq!(seal.state_path(), None);
    assert_eq!(file.load().expect("readable"), before);
    assert!(before.known(&name()).is_none());
}

#[test]
fn an_acceptance_that_cannot_be_written_is_noticed_before_the_module_starts() {
    let (root, sealed) = sealed(30);
    let (trust, file) = at("room");
    let trust = trust.built_in(Some(root), BTreeMap::new());
    let approve = LoadOptions {
        approve: true,
        ..LoadOptions::default()
    };
    let seal = trust.verify("m.wasm", &sealed, &approve).expect("good");
    // A folder has the place of the probe.
    let probe = beside(file.path(), &format!(".probe-{}", process::id()));
    std::fs::create_dir_all(probe.join("full")).expect("created");
    assert!(seal.check_memory().is_err());
    std::fs::remove_dir_all(&probe).expect("removed");
    seal.check_memory().expect("can be written");
    // A folder has the place of the state.
    std::fs::create_dir_all(file.path()).expect("created");
    assert!(seal.accept().is_err());
    assert!(!seal.is_remembered());
    std::fs::remove_dir(file.path()).expect("removed");
}

#[test]
fn a_floor_above_a_running_module_is_its_own_or_the_programs() {
    let (root, sealed) = sealed(30);
    let above = |floor: &str| {
        let floors = [(name(), release(floor))].into();
        let trust = Trust::packaged(root.clone()).built_in(Some(root.clone()), BTreeMap::new());
        let mut seal = trust
            .verify("m.wasm", &sealed, &LoadOptions::default())
            .expect("good");
        seal.trust.floors = floors;
        seal.floor_above()
    };
    assert_eq!(above("1.0"), None);
    assert_eq!(above("1.1"), None);
    assert_eq!(above("1.2"), Some(release("1.2")));
}

#[test]
fn what_would_be_granted_is_what_the_seal_asks_for() {
    let (root, sealed) = sealed(30);
    let trust = Trust::packaged(root);
    let options = LoadOptions::default();
    let granted = trust.would_grant("m.wasm", &sealed, &options);
    assert_eq!(granted.expect("good"), Some(Capabilities::default()));
    let unsealed = trust.allow_unsealed(true);
    let granted = unsealed.would_grant("m.wasm", BODY, &options);
    assert_eq!(granted.expect("allowed"), None);
    assert!(unsealed.would_grant("m.wasm", b"", &options).is_err());
}

#[test]
fn the_state_is_in_the_users_folder_unless_another_file_is_given() {
    let path = Trust::user_state().expect("a home folder");
    assert!(path.ends_with(Path::new("watm").join("trust")));
    assert_eq!(Store::User.path(), Some(path.clone()));
    assert_eq!(Store::in_memory().path(), Some(path));
    let file = Store::File("some/file".into());
    assert_eq!(file.path().as_deref(), Some(Path::new("some/file")));
}
