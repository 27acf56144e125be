//! Delegations: the names and capabilities that keys may sign.

use watm_seal::{
    Capabilities, Delegation, Manifest, ModuleRole, NamePattern, Policy, Purpose, Refused, Root,
    State, verify,
};

use crate::support::*;

/// Attack 11: one of two keys is not enough, and the same key twice counts once.
#[test]
fn a_threshold_counts_distinct_keys() {
    assert_eq!(code(check(&sealed_by(manifest(), &[11]))), "threshold");
    let file = sealed_by(manifest(), &[11, 11]);
    assert_eq!(code(check(&file)), "threshold");
    assert_eq!(code(check(&sealed_by(manifest(), &[11, 13]))), "accepted");
    // An unknown key, and one of another team, do not count.
    assert_eq!(code(check(&sealed_by(manifest(), &[11, 99]))), "threshold");
    assert_eq!(code(check(&sealed_by(manifest(), &[11, 21]))), "threshold");
    assert_eq!(
        code(check(&sealed_by(manifest(), &[11, 12, 99]))),
        "accepted"
    );
}

/// The refusal names the delegation that lacks least, and of equals the first.
#[test]
fn the_delegation_with_most_signatures_is_named() {
    let mut record = record();
    record.delegations.push(Delegation {
        name: name("team-c"),
        purpose: Purpose::Seal,
        threshold: 3,
        keys: [41, 42, 43].map(|number| key(number).public()).into(),
        names: ["wireguard".parse().expect("a pattern")].into(),
        ceiling: Capabilities::unlimited(),
    });
    let root = Root::trust(signed(record, &[1, 2])).expect("enough signatures");
    let manifest = Manifest {
        root: root.id(),
        ..manifest()
    };
    for (signers, expected, has) in [([11, 41, 42], "team-c", 2), ([11, 41, 99], "team-a", 1)] {
        let file = sealed_by(manifest.clone(), &signers);
        let refused = verify(&file, &root, &State::default(), &approving(), NOW);
        let Err(Refused::Threshold {
            delegation, valid, ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((delegation, valid), (name(expected), has));
    }
}

/// The refusal names all roles that the module has.
#[test]
fn a_refusal_lists_what_there_is() {
    let file = sealed(Manifest {
        roles: [ModuleRole::Listener, ModuleRole::Relay].into(),
        ..manifest()
    });
    let policy = Policy {
        role: Some(ModuleRole::Dialer),
        ..approving()
    };
    let refused = verify(&file, &root(), &State::default(), &policy, NOW);
    let Err(Refused::WrongName { found, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(found, "listener or relay");
}

/// Attack 11: the same signature twice in the file itself.
#[test]
fn a_repeated_signature_is_refused() {
    let file = sealed_by(plain_manifest(), &[21]);
    let key = *key(21).public().as_bytes();
    let at = file.windows(32).position(|window| window == key);
    let at = at.expect("the signer's key");
    let signature = &file[at..at + 96];
    let seal_at = 8 + 1 + 2 + 10;
    let seal = [&file[seal_at..at - 1], b"\x02", signature, signature].concat();
    let content = [b"\x09watm.seal", seal.as_slice()].concat();
    let length = [content.len() as u8 | 0x80, (content.len() >> 7) as u8];
    let twice = [&file[..8], b"\0", &length, &content, &file[at + 96..]].concat();
    assert_eq!(code(check(&twice)), "malformed");
}

/// Attack 12: the keys of one team under the name of another's module.
#[test]
fn a_team_signs_its_own_names_only() {
    assert_eq!(code(check(&sealed_by(plain_manifest(), &[21]))), "accepted");
    assert_eq!(code(check(&sealed_by(manifest(), &[21]))), "delegation");
    let foreign = sealed_by(plain_manifest(), &[11, 12]);
    assert_eq!(code(check(&foreign)), "delegation");
    let nobodys = sealed(Manifest {
        name: name("c/module"),
        ..manifest()
    });
    assert_eq!(code(check(&nobodys)), "delegation");
    // A key for notes seals nothing.
    assert_eq!(code(check(&sealed_by(manifest(), &[31]))), "threshold");
    let unknown = sealed_by(manifest(), &[98, 99]);
    assert_eq!(code(check(&unknown)), "threshold");
}

/// Attack 12: more than the team may give.
#[test]
fn a_ceiling_holds_for_every_capability() {
    let more: [fn(&mut Capabilities); 10] = [
        |asked| asked.memory_bytes = (1 << 20) + 1,
        |asked| asked.cpu_permille = 101,
        |asked| asked.flows = 11,
        |asked| asked.instances = 2,
        |asked| asked.host_crypto = true,
        |asked| asked.bind_transparent = true,
        |asked| asked.host_keys = true,
        |asked| asked.capture = true,
        |asked| asked.sockets = manifest().capabilities.sockets,
        |asked| asked.connect = manifest().capabilities.connect,
    ];
    for change in more {
        let mut beyond = plain_manifest();
        change(&mut beyond.capabilities);
        assert_eq!(code(check(&sealed_by(beyond, &[21]))), "delegation");
    }
    let mut elsewhere = manifest();
    elsewhere.capabilities.connect = ["tcp://example.org:443".parse().expect("a pattern")].into();
    assert_eq!(code(check(&sealed(elsewhere))), "delegation");
}

/// Attack 12: a floor for the module of another team would lock it out.
#[test]
fn a_team_sets_floors_for_its_own_names_only() {
    let file = sealed(Manifest {
        floors: [(name("plain"), release("1.9"))].into(),
        ..manifest()
    });
    assert_eq!(code(check(&file)), "delegation");
}

#[test]
fn patterns_of_names_have_what_begins_like_them() {
    let pattern = |text: &str| text.parse::<NamePattern>();
    let has = |text: &str, other: &str| pattern(text).expect("a pattern").has(&name(other));
    assert!(has("*", "wireguard"));
    assert!(has("a/*", "a/b"));
    assert!(has("wireguard", "wireguard"));
    assert!(!has("wireguard", "wireguard2"));
    assert!(!has("a/*", "a"));
    assert!(!has("a/*", "ab/c"));
    for wrong in ["", "**", "a*b", "*a", "A", "a b", "-a", "a\n"] {
        assert!(pattern(wrong).is_err(), "{wrong:?}");
    }
    assert!("a*".parse::<watm_seal::Name>().is_err());
    let long = "a".repeat(65);
    assert!(long.parse::<watm_seal::Name>().is_err());
    assert!(long.parse::<NamePattern>().is_err());
    assert!(long[..64].parse::<watm_seal::Name>().is_ok());
}
