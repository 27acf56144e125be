//! A root, and a module that is sealed under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use watm_seal::{
    Approval, Capabilities, Delegation, Digest, Manifest, ModuleRole, Policy, PrivateKey, Purpose,
    Refused, Root, RootRecord, SignedRoot, World, seal,
};

/// 2026-11-21.
pub const NOW: u64 = 1_795_253_400;

const BODY: &[u8] = b"\0asm\x01\0\0\0\0\x02\x01x";

/// The key of this number: 1 is the root's, 11 seals.
pub fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[number; 32])
}

pub fn root() -> &'static Root {
    static ROOT: LazyLock<Root> = LazyLock::new(|| {
        let record = RootRecord {
            version: 1,
            first: None,
            epoch: 3,
            expires: NOW + 1,
            threshold: 1,
            keys: [key(1).public()].into(),
            delegations: vec![Delegation {
                name: "release".parse().expect("a name"),
                purpose: Purpose::Seal,
                threshold: 1,
                keys: [key(11).public()].into(),
                names: ["demo/*".parse().expect("a pattern")].into(),
                ceiling: Capabilities {
                    memory_bytes: 1 << 30,
                    instances: 1000,
                    // As it was when the corpus was made.
                    sockets: ["tcp *", "udp *"]
                        .map(|socket| socket.parse().expect("a socket"))
                        .into(),
                    bind_transparent: false,
                    host_keys: false,
                    capture: false,
                    ..Capabilities::unlimited()
                },
            }],
            revoked: BTreeSet::new(),
        };
        let signed = SignedRoot::new(record).and_then(|root| root.sign(&key(1)));
        signed.and_then(Root::trust).expect("a possible root")
    });
    &ROOT
}

/// The one file that is accepted.
pub fn signed_file() -> &'static [u8] {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        file_of(Manifest {
            root: root().id(),
            name: "demo/x".parse().expect("a name"),
            world: World::WaterV1,
            roles: [ModuleRole::Dialer].into(),
            release: "1.1".parse().expect("a release"),
            version: "1".to_owned(),
            body_length: 0,
            body_sha256: Digest::of(b""),
            not_before: NOW - 1,
            expires: NOW + 1,
            channel: "stable".parse().expect("a name"),
            audience: None,
            min_host: "0.1.0".parse().expect("a version"),
            config_schema: 0,
            capabilities: Capabilities {
                sockets: ["udp listen".parse().expect("a socket")].into(),
                connect: ["tcp://*.example.com:443".parse().expect("a pattern")].into(),
                ..Capabilities::default()
            },
            floors: [("demo/y", "1.0")]
                .map(|(name, release)| {
                    (
                        name.parse().expect("a name"),
                        release.parse().expect("a release"),
                    )
                })
                .into(),
            requires: BTreeMap::new(),
            source_commit: String::new(),
            toolchain: String::new(),
        })
        .expect("can be sealed")
    });
    &FILE
}

/// The same body under this manifest, by the key that seals.
pub fn file_of(manifest: Manifest) -> Result<Vec<u8>, Refused> {
    seal(BODY, manifest, &[], &[key(11)])
}

pub fn approving() -> Policy {
    Policy {
        approval: Approval::Given,
        ..Policy::default()
    }
}
