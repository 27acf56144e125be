//! A root, modules sealed under it, and a host that has one of them in place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use watm_seal::state::StateFile;
use watm_seal::{
    Approval, Capabilities, DAY, Delegation, Digest, Manifest, ModuleRole, Name, Policy,
    PrivateKey, Purpose, Release, Root, RootRecord, SignedRoot, World, seal, verify,
};
use watm_update::{NetworkOptions, Outcome, Place, Report, Source, Terms, Updater};

/// Returns the time at which the tests began, so that things made twice are the same.
pub fn now() -> u64 {
    static BEGAN: LazyLock<u64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("after 1970").as_secs()
    });
    *BEGAN
}

pub fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[number; 32])
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub fn release(text: &str) -> Release {
    text.parse().expect("a release")
}

/// Returns the record: key 1 is the root's, 11 seals modules, 31 announces them.
pub fn record() -> RootRecord {
    let delegation = |name: &str, purpose, key_number: u8, ceiling| Delegation {
        name: name.parse().expect("a name"),
        purpose,
        threshold: 1,
        keys: [key(key_number).public()].into(),
        names: ["*".parse().expect("a pattern")].into(),
        ceiling,
    };
    RootRecord {
        version: 1,
        first: None,
        epoch: 1,
        expires: 4_000_000_000,
        threshold: 1,
        keys: [key(1).public()].into(),
        delegations: vec![
            delegation("fresh", Purpose::Freshness, 31, Capabilities::default()),
            delegation("release", Purpose::Seal, 11, Capabilities::unlimited()),
        ],
        revoked: BTreeSet::new(),
    }
}

pub fn signed(record: RootRecord) -> SignedRoot {
    let root = SignedRoot::new(record).expect("a possible record");
    root.sign(&key(1)).expect("room for a signature")
}

pub fn root() -> Root {
    Root::trust(signed(record())).expect("signed")
}

pub fn manifest(number: &str) -> Manifest {
    Manifest {
        root: root().id(),
        name: name("wireguard"),
        world: World::WaterV1,
        roles: [ModuleRole::Dialer].into(),
        release: release(number),
        version: "0.1.0".to_owned(),
        body_length: 0,
        body_sha256: Digest::of(b""),
        not_before: now() - DAY,
        expires: now() + 90 * DAY,
        channel: name("stable"),
        audience: None,
        min_host: "0.1.0".parse().expect("a version"),
        config_schema: 1,
        capabilities: Capabilities::default(),
        floors: BTreeMap::new(),
        requires: BTreeMap::new(),
        source_commit: String::new(),
        toolchain: String::new(),
    }
}

/// Returns a module whose custom section has this many bytes.
pub fn body(filling: usize) -> Vec<u8> {
    let filling = "x".repeat(filling);
    wat::parse_str(format!("(module (@custom \"filling\" \"{filling}\"))")).expect("valid")
}

pub fn sealed_of(manifest: Manifest, body: &[u8]) -> Vec<u8> {
    seal(body, manifest, &[], &[key(11)]).expect("can be sealed")
}

/// Returns `wireguard` of this release, some 100 KB.
pub fn sealed(number: &str) -> Vec<u8> {
    sealed_of(manifest(number), &body(100_000))
}

/// Returns options with times short enough for a test.
pub fn impatient() -> NetworkOptions {
    NetworkOptions {
        plain_http: true,
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_millis(400),
        total_timeout: Duration::from_secs(5),
        ..NetworkOptions::default()
    }
}

/// A folder of its own, with a place and a state in it.
pub struct Host {
    pub folder: PathBuf,
    pub policy: Policy,
}

impl Host {
    /// Makes a host with nothing in place.
    pub fn empty() -> Host {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-{number}"));
        // An error means that it does not exist.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let policy = Policy {
            name: Some(name("wireguard")),
            channel: Some(name("stable")),
            ..Policy::default()
        };
        Host { folder, policy }
    }

    /// Makes a host with this in place.
    pub fn with(module: &[u8]) -> Host {
        let host = Host::empty();
        fs::write(host.place().path(), module).expect("written");
        host
    }

    pub fn place(&self) -> Place {
        Place::new(self.folder.join("module.wasm"))
    }

    pub fn state(&self) -> StateFile {
        StateFile::new(self.folder.join("state"))
    }

    pub fn updater(&self, source: &str) -> Updater {
        let terms = Terms {
            root: root(),
            state: self.state(),
            policy: self.policy.clone(),
        };
        let source = Source::parse(source).expect("a source");
        Updater::new(source, self.place(), terms).network(impatient())
    }

    pub async fn update(&self, source: &str) -> Report {
        self.updater(source).check().await
    }

    /// Approves a module as its user does.
    pub fn approve(&self, module: &[u8]) {
        let policy = Policy {
            approval: Approval::Given,
            ..Policy::default()
        };
        let state = self.state().load().expect("read");
        let verified = verify(module, &root(), &state, &policy, now()).expect("good");
        let accepted = self.state().update(|state| state.accept(&verified));
        accepted.expect("written");
    }

    /// Returns true if this is in place, to the last bit.
    pub fn holds(&self, module: &[u8]) -> bool {
        self.in_place().is_some_and(|found| found == module)
    }

    pub fn in_place(&self) -> Option<Vec<u8>> {
        fs::read(self.place().path()).ok()
    }

    /// Returns the names of all files other than the module, the lock and the state's.
    pub fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).expect("there");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("read").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.starts_with("module.wasm."))
            .filter(|name| name != "module.wasm.lock")
            .collect();
        names.sort();
        names
    }
}

/// Returns the reason of a refusal.
pub fn reason(report: &Report) -> &str {
    match &report.outcome {
        Outcome::Refused { reason, .. } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns the code of an outcome, or its name.
pub fn code(report: &Report) -> &str {
    match &report.outcome {
        Outcome::Unchanged { .. } => "unchanged",
        Outcome::Updated { .. } => "updated",
        Outcome::Pending { .. } => "pending",
        Outcome::Refused { code, reason } => {
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
            code
        }
    }
}
