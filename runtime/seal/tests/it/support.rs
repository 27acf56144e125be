//! A root with two teams, their keys, and a module of the first.

use std::collections::{BTreeMap, BTreeSet};

use watm_seal::{
    Approval, Capabilities, DAY, Delegation, Digest, Manifest, ModuleRole, Name, Policy,
    PrivateKey, Purpose, Refused, Root, RootRecord, SignedRoot, Socket, State, Verified, World,
    seal, verify,
};

/// The time of the tests, 2026-11-21.
pub const NOW: u64 = 1_795_253_400;

/// Returns the key of this number; the same each time.
pub fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[number; 32])
}

pub fn keys(numbers: &[u8]) -> Vec<PrivateKey> {
    numbers.iter().map(|number| key(*number)).collect()
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub fn release(text: &str) -> watm_seal::Release {
    text.parse().expect("a release")
}

/// Returns the record of version 1: root keys 1 to 3 (two of them needed), team A (keys 11 to 13,
/// two needed) for `wireguard` and `a/*`, team B (key 21) for `plain` and `b/*` with little, and
/// key 31 for freshness notes.
pub fn record() -> RootRecord {
    let delegation =
        |name: &str, purpose, threshold, keys: &[u8], names: &[&str], ceiling| Delegation {
            name: name.parse().expect("a name"),
            purpose,
            threshold,
            keys: keys.iter().map(|number| key(*number).public()).collect(),
            names: names
                .iter()
                .map(|name| name.parse().expect("a pattern"))
                .collect(),
            ceiling,
        };
    let little = Capabilities {
        memory_bytes: 1 << 20,
        cpu_permille: 100,
        flows: 10,
        instances: 1,
        ..Capabilities::default()
    };
    let wide = Capabilities {
        host_crypto: true,
        connect: ["tcp://*.example.com:443".parse().expect("a pattern")].into(),
        ..Capabilities::unlimited()
    };
    RootRecord {
        version: 1,
        first: None,
        epoch: 1,
        expires: NOW + 1000 * DAY,
        threshold: 2,
        keys: [1, 2, 3].map(|number| key(number).public()).into(),
        delegations: vec![
            delegation(
                "fresh",
                Purpose::Freshness,
                1,
                &[31],
                &["*"],
                Capabilities::default(),
            ),
            delegation(
                "team-a",
                Purpose::Seal,
                2,
                &[11, 12, 13],
                &["wireguard", "a/*"],
                wide,
            ),
            delegation("team-b", Purpose::Seal, 1, &[21], &["plain", "b/*"], little),
        ],
        revoked: BTreeSet::new(),
    }
}

pub fn signed(record: RootRecord, signers: &[u8]) -> SignedRoot {
    let root = SignedRoot::new(record).expect("a possible record");
    signers
        .iter()
        .try_fold(root, |root, number| root.sign(&key(*number)))
        .expect("room for signatures")
}

/// Returns version 1, trusted.
pub fn root() -> Root {
    Root::trust(signed(record(), &[1, 2])).expect("enough signatures")
}

/// Returns the version after this one, as `change` makes it.
pub fn next(root: &Root, change: impl FnOnce(&mut RootRecord)) -> RootRecord {
    let mut record = root.record().clone();
    record.version += 1;
    record.first = Some(root.id());
    change(&mut record);
    record
}

/// Returns a module of one function, with custom sections before and behind.
pub fn body() -> Vec<u8> {
    wat::parse_str(
        r#"(module
            (@custom "first" (before first) "one")
            (func (export "go") (result i32) i32.const 42)
            (@custom "last" (after last) "two"))"#,
    )
    .expect("valid text")
}

/// Returns the manifest of `wireguard`, release 1.5.
pub fn manifest() -> Manifest {
    Manifest {
        root: root().id(),
        name: name("wireguard"),
        world: World::Component {
            name: "watm:transport/module".to_owned(),
            version: "0.1.0".parse().expect("a version"),
        },
        roles: [ModuleRole::Listener].into(),
        release: release("1.5"),
        version: "0.1.5".to_owned(),
        body_length: 0,
        body_sha256: Digest::of(b""),
        not_before: NOW - 10 * DAY,
        expires: NOW + 90 * DAY,
        channel: name("stable"),
        audience: None,
        min_host: "0.1.0".parse().expect("a version"),
        config_schema: 1,
        capabilities: Capabilities {
            sockets: [Socket {
                kind: watm_seal::SocketKind::Udp,
                label: "listen".parse().expect("a label"),
            }]
            .into(),
            connect: ["tcp://a.example.com:443".parse().expect("a pattern")].into(),
            host_crypto: true,
            bind_transparent: false,
            host_keys: false,
            capture: false,
            memory_bytes: 64 << 20,
            cpu_permille: 1000,
            flows: 1000,
            instances: 1,
        },
        floors: BTreeMap::new(),
        requires: BTreeMap::new(),
        source_commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        toolchain: "rustc 1.95.0".to_owned(),
    }
}

/// Returns the manifest of `plain` of team B, release 1.1.
pub fn plain_manifest() -> Manifest {
    Manifest {
        name: name("plain"),
        release: release("1.1"),
        capabilities: Capabilities::default(),
        ..manifest()
    }
}

pub fn sealed_by(manifest: Manifest, signers: &[u8]) -> Vec<u8> {
    seal(&body(), manifest, &[], &keys(signers)).expect("can be sealed")
}

pub fn sealed(manifest: Manifest) -> Vec<u8> {
    sealed_by(manifest, &[11, 12])
}

/// Makes a file with this body, chain (as it is written), manifest and signatures over it,
/// assembled without checks.
pub fn by_hand(body: &[u8], chain: &[u8], manifest: &[u8], signers: &[u8]) -> Vec<u8> {
    use ed25519_dalek::{Signer, SigningKey};

    let record = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let message = [b"watm/seal/v1\0", manifest].concat();
    let mut signatures: Vec<Vec<u8>> = signers
        .iter()
        .map(|number| {
            let signature = SigningKey::from_bytes(&[*number; 32]).sign(&message);
            [key(*number).public().as_bytes(), &signature.to_bytes()[..]].concat()
        })
        .collect();
    signatures.sort_unstable();
    let content = [
        b"\x09watm.seal\x01".to_vec(),
        record(chain),
        record(manifest),
        vec![signers.len() as u8],
        signatures.concat(),
    ]
    .concat();
    assert!(
        (128..1 << 14).contains(&content.len()),
        "two bytes of length"
    );
    let length = [content.len() as u8 | 0x80, (content.len() >> 7) as u8];
    [&body[..8], b"\0", &length, &content, &body[8..]].concat()
}

/// Returns a policy with the user's approval of the module's capabilities.
pub fn approving() -> Policy {
    Policy {
        approval: Approval::Given,
        ..Policy::default()
    }
}

/// Verifies a file with an empty state and an approving user.
pub fn check(file: &[u8]) -> Result<Verified<'_>, Refused> {
    verify(file, &root(), &State::default(), &approving(), NOW)
}

/// Returns the code of the refusal, or `accepted`.
pub fn code(result: Result<Verified<'_>, Refused>) -> &'static str {
    match result {
        Ok(_) => "accepted",
        Err(refused) => {
            let line = refused.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
            refused.code()
        }
    }
}

/// Returns the state after this has been accepted.
pub fn accepted(state: &State, file: &[u8]) -> State {
    let verified = verify(file, &root(), state, &approving(), NOW);
    let mut state = state.clone();
    state.accept(&verified.expect("acceptable"));
    state
}

/// SplitMix64, the source of every random choice of a test.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }
}
