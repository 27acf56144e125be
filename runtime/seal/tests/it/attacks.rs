//! Files that are refused although every bit is signed.

use std::collections::BTreeMap;

use watm_seal::{
    Capabilities, DAY, Manifest, ModuleRole, Name, Policy, Refused, Release, State, World, seal,
    verify,
};

use crate::support::*;

fn of_release(text: &str) -> Vec<u8> {
    sealed(Manifest {
        release: release(text),
        ..manifest()
    })
}

fn judge(file: &[u8], state: &State, policy: &Policy) -> &'static str {
    code(verify(file, &root(), state, policy, NOW))
}

/// Attack 6: an older release, also when the newer file is gone.
#[test]
fn an_older_release_is_refused() {
    let state = accepted(&State::default(), &of_release("1.5"));
    assert_eq!(judge(&of_release("1.4"), &state, &approving()), "rollback");
    assert_eq!(judge(&of_release("0.9"), &state, &approving()), "rollback");
    assert_eq!(judge(&of_release("1.5"), &state, &approving()), "accepted");
    assert_eq!(judge(&of_release("1.6"), &state, &approving()), "accepted");
}

/// Attack 6: an older release on a host that has lost its state.
#[test]
fn the_floors_of_the_host_survive_its_state() {
    let policy = Policy {
        floors: [(name("wireguard"), release("1.5"))].into(),
        ..approving()
    };
    let nothing = State::default();
    assert_eq!(judge(&of_release("1.4"), &nothing, &policy), "rollback");
    assert_eq!(judge(&of_release("1.5"), &nothing, &policy), "accepted");
}

/// Attack 6: a release that a later module has named a floor for.
#[test]
fn a_floor_of_a_module_holds_for_others() {
    let other = sealed(Manifest {
        name: name("a/other"),
        floors: [(name("wireguard"), release("1.5"))].into(),
        ..manifest()
    });
    let state = accepted(&State::default(), &other);
    assert_eq!(judge(&of_release("1.4"), &state, &approving()), "rollback");
    assert_eq!(judge(&of_release("1.5"), &state, &approving()), "accepted");
    // A lower floor later changes nothing.
    let lower = sealed(Manifest {
        name: name("a/other"),
        release: release("1.6"),
        floors: [(name("wireguard"), release("1.2"))].into(),
        ..manifest()
    });
    let state = accepted(&state, &lower);
    assert_eq!(judge(&of_release("1.4"), &state, &approving()), "rollback");
}

/// A user may return to one release that is not below a floor. Attack 21: the same limit applies to
/// a host that falls back because the newest release crashes.
#[test]
fn a_downgrade_needs_leave_and_keeps_to_the_floors() {
    let newest = sealed(Manifest {
        floors: [(name("wireguard"), release("1.3"))].into(),
        ..manifest()
    });
    let state = accepted(&State::default(), &newest);
    let allowing = |text: &str| Policy {
        allow_downgrade: Some((name("wireguard"), release(text))),
        ..approving()
    };
    let file = of_release("1.4");
    assert_eq!(judge(&file, &state, &allowing("1.3")), "rollback");
    let policy = allowing("1.4");
    let verified = verify(&file, &root(), &state, &policy, NOW).expect("allowed");
    assert_eq!(verified.warnings()[0].code(), "downgrade");
    // It applies to this call only.
    let mut after = state.clone();
    after.accept(&verified);
    assert_eq!(after, state);
    assert_eq!(judge(&file, &after, &approving()), "rollback");
    // It applies to this name only.
    let elsewhere = Policy {
        allow_downgrade: Some((name("a/other"), release("1.4"))),
        ..approving()
    };
    assert_eq!(judge(&file, &state, &elsewhere), "rollback");
    assert_eq!(
        judge(&of_release("1.2"), &state, &allowing("1.2")),
        "rollback"
    );
    let built_in = Policy {
        floors: [(name("wireguard"), release("1.5"))].into(),
        ..allowing("1.4")
    };
    assert_eq!(judge(&file, &state, &built_in), "rollback");
}

/// Attack 7: an old file forever.
#[test]
fn an_expired_module_is_not_loaded() {
    let file = sealed(manifest());
    let at = |time| verify(&file, &root(), &State::default(), &approving(), time);
    let expires = manifest().expires;
    assert_eq!(code(at(expires)), "expired");
    assert_eq!(code(at(manifest().not_before - 1)), "not-yet-valid");
    at(manifest().not_before).expect("valid from here on");
    // Warnings come before that.
    let late = at(expires - 1).expect("valid up to here");
    assert_eq!(late.warnings()[0].code(), "expires-soon");
    assert_eq!(at(expires - 15 * DAY).expect("valid").warnings(), []);
}

/// Attack 8: a stolen key has signed the highest possible sequence. The next root raises the epoch,
/// in the file of the next release itself.
#[test]
fn a_new_epoch_recovers_from_the_highest_sequence() {
    let stolen = sealed(Manifest {
        release: Release {
            epoch: 1,
            sequence: u64::MAX,
        },
        ..manifest()
    });
    let state = accepted(&State::default(), &stolen);
    assert_eq!(judge(&of_release("1.6"), &state, &approving()), "rollback");
    // A release key cannot raise it.
    assert_eq!(
        judge(&of_release("2.1"), &state, &approving()),
        "delegation"
    );
    let raised = signed(next(&root(), |record| record.epoch = 2), &[1, 2]);
    let update = Manifest {
        release: release("2.1"),
        ..manifest()
    };
    let signers = keys(&[11, 12]);
    let file = seal(&body(), update, &[raised], &signers).expect("sealed");
    let state = accepted(&state, &file);
    assert_eq!(judge(&stolen, &state, &approving()), "rollback");
    let known = state.known(&name("wireguard")).expect("known");
    assert_eq!(known.accepted.expect("accepted").0, release("2.1"));
    // The same with a floor.
    assert_eq!(state.root().expect("known").record().epoch, 2);
}

/// Attack 8, with a floor in place of the release.
#[test]
fn a_floor_beyond_the_epoch_is_refused() {
    let file = sealed(Manifest {
        name: name("a/other"),
        floors: [(name("wireguard"), release("2.0"))].into(),
        ..manifest()
    });
    assert_eq!(code(check(&file)), "delegation");
}

/// Attack 10: a valid module in place of another.
#[test]
fn another_module_than_the_one_asked_for_is_refused() {
    let file = sealed(Manifest {
        audience: Some(name("testers")),
        ..manifest()
    });
    let wanted = Policy {
        name: Some(name("wireguard")),
        worlds: vec![World::WaterV1, manifest().world],
        role: Some(ModuleRole::Listener),
        channel: Some(name("stable")),
        audiences: [name("testers"), name("office")].into(),
        host: Some("0.1.0".parse().expect("a version")),
        config_schema: Some(1),
        ..approving()
    };
    let nothing = State::default();
    assert_eq!(judge(&file, &nothing, &wanted), "accepted");
    let other_world = World::Component {
        name: "watm:transport/module".to_owned(),
        version: "0.2.0".parse().expect("a version"),
    };
    let others: [(&str, Policy); 7] = [
        (
            "name",
            Policy {
                name: Some(name("tls")),
                ..wanted.clone()
            },
        ),
        (
            "world",
            Policy {
                worlds: vec![other_world],
                ..wanted.clone()
            },
        ),
        (
            "world",
            Policy {
                worlds: vec![World::WaterV0],
                ..wanted.clone()
            },
        ),
        (
            "role",
            Policy {
                role: Some(ModuleRole::Dialer),
                ..wanted.clone()
            },
        ),
        (
            "channel",
            Policy {
                channel: Some(name("beta")),
                ..wanted.clone()
            },
        ),
        (
            "audience",
            Policy {
                audiences: [name("office")].into(),
                ..wanted.clone()
            },
        ),
        (
            "config-schema",
            Policy {
                config_schema: Some(2),
                ..wanted.clone()
            },
        ),
    ];
    for (expected, policy) in others {
        let refused = verify(&file, &root(), &nothing, &policy, NOW).expect_err("another");
        assert_eq!(refused.code(), "wrong-name");
        assert!(matches!(refused, Refused::WrongName { field, .. } if field == expected));
    }
    let old = Policy {
        host: Some("0.0.9".parse().expect("a version")),
        ..wanted
    };
    assert_eq!(judge(&file, &nothing, &old), "host-too-old");
}

/// Attack 14: an update that requests more.
#[test]
fn more_capabilities_wait_for_approval() {
    let state = accepted(&State::default(), &sealed(manifest()));
    let recorded = Policy::default();
    let update = |text: &str, change: fn(&mut Capabilities)| {
        let mut update = Manifest {
            release: release(text),
            ..manifest()
        };
        change(&mut update.capabilities);
        sealed(update)
    };
    // The same, and less.
    assert_eq!(judge(&update("1.6", |_| ()), &state, &recorded), "accepted");
    let less = update("1.6", |asked| {
        asked.connect.clear();
        asked.host_crypto = false;
        asked.memory_bytes = 1;
    });
    assert_eq!(judge(&less, &state, &recorded), "accepted");
    // More, each in its own way.
    let more: [fn(&mut Capabilities); 6] = [
        |asked| asked.memory_bytes += 1,
        |asked| asked.cpu_permille += 1,
        |asked| asked.flows += 1,
        |asked| asked.instances += 1,
        |asked| {
            let other = "tcp://b.example.com:443".parse().expect("a pattern");
            asked.connect.insert(other);
        },
        |asked| {
            let mut other = asked.sockets.first().expect("one").clone();
            other.label = "second".parse().expect("a label");
            asked.sockets.insert(other);
        },
    ];
    for change in more {
        let file = update("1.6", change);
        let refused = verify(&file, &root(), &state, &recorded, NOW).expect_err("more");
        assert!(matches!(&refused, Refused::NeedsApproval { more, .. } if more.len() == 1));
        // An approval stays.
        let after = accepted(&state, &file);
        assert_eq!(judge(&file, &after, &recorded), "accepted");
    }
    // A release that requests less revokes nothing of it.
    let mut narrowed = state.clone();
    let verified = verify(&less, &root(), &state, &recorded, NOW).expect("less");
    narrowed.accept(&verified);
    let same = update("1.7", |_| ());
    assert_eq!(judge(&same, &narrowed, &recorded), "accepted");
    // Nothing is approved before the first time.
    let first = judge(&sealed(manifest()), &State::default(), &recorded);
    assert_eq!(first, "needs-approval");
}

/// Attack 24, as far as the host can see it: two modules under one number.
#[test]
fn a_number_stands_for_one_module() {
    let state = accepted(&State::default(), &sealed(manifest()));
    let other = wat::parse_str("(module)").expect("valid text");
    let other = seal(&other, manifest(), &[], &keys(&[11, 12])).expect("sealed");
    assert_eq!(judge(&other, &state, &approving()), "equivocation");
    // The same module with another date is the same module.
    let renewed = sealed(Manifest {
        expires: NOW + 100 * DAY,
        ..manifest()
    });
    assert_eq!(judge(&renewed, &state, &approving()), "accepted");
}

/// Attack 24: a module made for one user. The hash is shown, and can be pinned.
#[test]
fn a_pinned_file_is_the_only_one() {
    let file = sealed(manifest());
    let hash = check(&file).expect("good").sha256();
    assert_eq!(hash, watm_seal::Digest::of(&file));
    let pinned = Policy {
        pins: [hash].into(),
        allow_unsealed: true,
        ..approving()
    };
    let nothing = State::default();
    assert_eq!(judge(&file, &nothing, &pinned), "accepted");
    assert_eq!(judge(&of_release("1.6"), &nothing, &pinned), "not-pinned");
    assert_eq!(judge(&body(), &nothing, &pinned), "not-pinned");
}

/// Attack 17: compiler output is not a module, wherever it comes from.
#[test]
fn a_precompiled_module_is_no_module() {
    let developing = Policy {
        allow_unsealed: true,
        ..approving()
    };
    let precompiled = b"\x7fELF\x02\x01\x01\0 and code";
    assert_eq!(
        judge(precompiled, &State::default(), &developing),
        "not-wasm"
    );
    assert!(seal(precompiled, manifest(), &[], &keys(&[11, 12])).is_err());
}

/// Tests that a host that gets ever new names does not grow without bound.
#[test]
fn the_state_has_room_for_so_many_names() {
    let mut state = State::default();
    let mut number = 0;
    let full = loop {
        let floors: BTreeMap<Name, Release> = (0..32)
            .map(|_| {
                number += 1;
                (name(&format!("a/{number}")), release("1.0"))
            })
            .collect();
        let file = sealed(Manifest {
            floors,
            ..manifest()
        });
        match verify(&file, &root(), &state, &approving(), NOW) {
            Ok(verified) => state.accept(&verified),
            Err(refused) => break refused,
        }
        assert!(number < 10_000);
    };
    assert_eq!(full.code(), "state-full");
    assert!(state.names().count() <= 1024);
    // Known names are still updated.
    assert_eq!(judge(&of_release("1.6"), &state, &approving()), "accepted");
}
