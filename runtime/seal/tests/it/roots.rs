//! Rotations of the root.

use watm_seal::{Manifest, Policy, Root, SignedRoot, State, add_signature, seal, verify};

use crate::support::*;

fn with_chain(chain: &[SignedRoot], signers: &[u8]) -> Vec<u8> {
    seal(&body(), manifest(), chain, &keys(signers)).expect("sealed")
}

#[test]
fn a_root_is_trusted_once_enough_of_its_keys_have_signed() {
    assert!(Root::trust(signed(record(), &[1])).is_err());
    assert!(Root::trust(signed(record(), &[1, 99])).is_err());
    assert!(Root::trust(signed(record(), &[1, 1])).is_err());
    let root = Root::trust(signed(record(), &[3, 1])).expect("two of three");
    // Its signatures do not change the root's id.
    assert_eq!(root.id(), crate::support::root().id());
    let file = root.signed().to_file();
    let read = SignedRoot::from_file(&file).expect("as it was written");
    assert_eq!(&read, root.signed());
    assert_eq!(read.signers().count(), 2);
}

#[test]
fn a_root_goes_from_signer_to_signer_as_a_file() {
    let first = signed(record(), &[1]).to_file();
    let second = SignedRoot::from_file(&first).expect("partly signed");
    assert_eq!(second.signers().count(), 1);
    let second = second.sign(&key(2)).expect("signs").to_file();
    assert_eq!(second, signed(record(), &[2, 1]).to_file());
}

/// Attack 1 on the root's own file.
#[test]
fn every_flipped_bit_of_a_root_is_refused() {
    let mut file = signed(record(), &[1, 2]).to_file();
    for at in 0..file.len() {
        assert!(SignedRoot::from_file(&file[..at]).is_err());
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            assert!(SignedRoot::from_file(&file).is_err(), "byte {at} bit {bit}");
            file[at] ^= 1 << bit;
        }
    }
}

#[test]
fn a_rotation_in_the_file_is_followed() {
    // Root key 3 and release key 11 are replaced.
    let second = signed(
        next(&root(), |record| {
            record.keys = [1, 2, 4].map(|number| key(number).public()).into();
            let team = &mut record.delegations[1];
            team.keys = [12, 13, 14].map(|number| key(number).public()).into();
            record.revoked = [3, 11].map(|number| key(number).public()).into();
        }),
        &[1, 2],
    );
    let third = next(&Root::trust(second.clone()).expect("enough"), |record| {
        record.threshold = 3
    });
    let third = signed(third, &[1, 2, 4]);
    let chain = [second, third];
    let file = with_chain(&chain, &[12, 14]);
    let verified = check(&file).expect("good");
    assert_eq!(verified.proof().expect("sealed").root.record().version, 3);
    let state = accepted(&State::default(), &file);
    assert_eq!(state.root().expect("known").record().version, 3);
    // It needs no chain from here on, and the old keys do not count: attack 13.
    let judge = |file: &[u8]| code(verify(file, &root(), &state, &approving(), NOW));
    assert_eq!(judge(&with_chain(&[], &[12, 14])), "accepted");
    assert_eq!(judge(&with_chain(&[], &[11, 12])), "revoked");
    assert_eq!(judge(&with_chain(&chain, &[11, 12])), "revoked");
    // Enough others make up for a key that has been revoked since.
    assert_eq!(judge(&with_chain(&[], &[11, 12, 13])), "accepted");
}

/// Attack 13: a version that does not follow from the one before.
#[test]
fn a_root_that_does_not_follow_is_refused() {
    let other_keys = |record: &mut watm_seal::RootRecord| {
        record.keys = [4, 5, 6].map(|number| key(number).public()).into();
    };
    let refused = |chain: &[SignedRoot]| code(check(&with_chain(chain, &[11, 12])));
    // Signed by the new keys only, and by one old one.
    assert_eq!(
        refused(&[signed(next(&root(), other_keys), &[4, 5])]),
        "bad-root"
    );
    assert_eq!(
        refused(&[signed(next(&root(), other_keys), &[1, 4, 5])]),
        "bad-root"
    );
    // Signed by both it is valid.
    let second = signed(next(&root(), other_keys), &[1, 2, 4, 5]);
    assert_eq!(refused(std::slice::from_ref(&second)), "accepted");
    // Version 3 without version 2.
    let second = Root::trust(second).expect("enough");
    let third = signed(next(&second, |_| ()), &[4, 5]);
    assert_eq!(refused(std::slice::from_ref(&third)), "bad-root");
    let chain = [second.signed().clone(), third.clone()];
    assert_eq!(refused(&chain), "accepted");
    // Signed by the old keys only it is not even written.
    let half = signed(next(&root(), other_keys), &[1, 2]);
    let half = std::slice::from_ref(&half);
    assert!(seal(&body(), manifest(), half, &[]).is_err());
    // The same in a file of its own.
    let alone = root().advance(&half[0]).expect_err("not by the new keys");
    assert_eq!(alone.code(), "bad-root");
    assert!(root().follow(half).is_err());
    // The right keys do not help a version out of order.
    let early = next(&root(), |record| record.version = 3);
    assert_eq!(refused(&[signed(early, &[1, 2])]), "bad-root");
    let again = root().advance(root().signed()).expect_err("is the same");
    assert_eq!(again.code(), "bad-root");
    let backwards = [third, second.signed().clone()];
    assert!(seal(&body(), manifest(), &backwards, &[]).is_err());
    // An epoch that goes down.
    let second = signed(next(&root(), |record| record.epoch = 0), &[1, 2]);
    assert_eq!(refused(&[second]), "bad-root");
}

/// Attack 25: an old version of the root, after a newer one.
#[test]
fn an_old_root_changes_nothing() {
    let second = signed(
        next(&root(), |record| {
            record.delegations[1].keys = [12, 13].map(|number| key(number).public()).into();
            record.revoked = [key(11).public()].into();
        }),
        &[1, 2],
    );
    let state = accepted(
        &State::default(),
        &with_chain(std::slice::from_ref(&second), &[12, 13]),
    );
    // In the file, and as the root that the host is given.
    let first = root().signed().clone();
    let old = with_chain(&[first.clone(), second], &[11, 12]);
    let judge = |file: &[u8]| code(verify(file, &root(), &state, &approving(), NOW));
    assert_eq!(judge(&old), "revoked");
    assert_eq!(judge(&with_chain(&[first], &[11, 12])), "revoked");
    let mut after = state.clone();
    after.adopt(&root());
    assert_eq!(after, state);
}

/// Tests that a host learns of a revoked key even if it refuses the module that brings the news.
#[test]
fn a_rotation_counts_without_its_module() {
    let second = signed(
        next(&root(), |record| {
            record.delegations[1].keys = [12, 13].map(|number| key(number).public()).into();
            record.revoked = [key(11).public()].into();
        }),
        &[1, 2],
    );
    let file = with_chain(&[second], &[11, 12]);
    assert_eq!(code(check(&file)), "revoked");
    let sealed = watm_seal::Sealed::parse(&file).expect("sealed");
    let mut state = State::default();
    state.adopt(&root().follow(sealed.chain()).expect("follows"));
    let old = with_chain(&[], &[11, 12]);
    let result = verify(&old, &root(), &state, &approving(), NOW);
    assert_eq!(code(result), "revoked");
}

#[test]
fn another_root_with_the_same_keys_is_another_root() {
    let other = watm_seal::RootRecord {
        expires: record().expires + 1,
        ..record()
    };
    let other = Root::trust(signed(other, &[1, 2])).expect("enough");
    let file = sealed(manifest());
    let nothing = State::default();
    let result = verify(&file, &other, &nothing, &approving(), NOW);
    assert_eq!(code(result), "unknown-root");
    // A host does not change its root by accident.
    let state = accepted(&nothing, &file);
    let file = sealed(Manifest {
        root: other.id(),
        ..manifest()
    });
    let result = verify(&file, &other, &state, &approving(), NOW);
    assert_eq!(code(result), "unknown-root");
    // A chain does not change it either.
    let foreign = signed(next(&other, |_| ()), &[1, 2]);
    assert_eq!(
        code(check(&with_chain(&[foreign], &[11, 12]))),
        "unknown-root"
    );
}

#[test]
fn an_expired_root_accepts_nothing_but_its_next_version() {
    let file = sealed(Manifest {
        expires: NOW + 2000 * watm_seal::DAY,
        ..manifest()
    });
    let later = NOW + 1000 * watm_seal::DAY;
    let nothing = State::default();
    let at = |file: &[u8]| {
        code(verify(
            file,
            &root(),
            &nothing,
            &Policy {
                allow_downgrade: None,
                ..approving()
            },
            later,
        ))
    };
    assert_eq!(at(&file), "root-expired");
    let second = signed(
        next(&root(), |record| record.expires += 1000 * watm_seal::DAY),
        &[1, 2],
    );
    let renewed = Manifest {
        expires: NOW + 2000 * watm_seal::DAY,
        ..manifest()
    };
    let file = seal(&body(), renewed, &[second], &keys(&[11, 12])).expect("sealed");
    assert_eq!(at(&file), "accepted");
}

#[test]
fn an_impossible_root_is_not_signed() {
    let wrong: [fn(&mut watm_seal::RootRecord); 9] = [
        |record| record.version = 0,
        |record| record.version = 2,
        |record| record.threshold = 0,
        |record| record.threshold = 4,
        |record| record.keys.clear(),
        |record| record.delegations[1].threshold = 0,
        |record| record.delegations[2].threshold = 2,
        |record| record.revoked = [key(11).public()].into(),
        |record| record.delegations.reverse(),
    ];
    for change in wrong {
        let mut record = record();
        change(&mut record);
        let refused = SignedRoot::new(record).expect_err("impossible");
        assert_eq!(refused.code(), "malformed");
    }
}

#[test]
fn a_chain_stays_when_one_more_signs() {
    let second = signed(next(&root(), |_| ()), &[1, 2]);
    let file = with_chain(std::slice::from_ref(&second), &[11]);
    let file = add_signature(&file, &key(12)).expect("signs");
    assert_eq!(file, with_chain(&[second], &[11, 12]));
    assert_eq!(code(check(&file)), "accepted");
}
