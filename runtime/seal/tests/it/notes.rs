//! Freshness notes.

use watm_seal::{Announcement, Manifest, Note, State, check_running, verify};

use crate::support::*;

fn announcing(text: &str, time: u64) -> Note {
    let note = Note::new(Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release(text),
        time,
    });
    note.sign(&key(31)).expect("signs")
}

/// Attack 7: a host whose updates are withheld learns it long before its module expires.
#[test]
fn a_note_tells_of_a_release_that_did_not_come() {
    let file = sealed(manifest());
    let mut state = accepted(&State::default(), &file);
    let note = Note::from_file(&announcing("1.6", NOW).to_file()).expect("as written");
    let announcement = note.verify(&root(), &state, NOW).expect("by its key");
    assert!(state.announce(&announcement).expect("room"));
    let verified = verify(&file, &root(), &state, &approving(), NOW).expect("still good");
    assert_eq!(verified.warnings()[0].code(), "outdated");
    let running = check_running(&manifest(), &state, &approving(), NOW);
    assert_eq!(running[0].code(), "outdated");
    let newer = sealed(Manifest {
        release: release("1.6"),
        ..manifest()
    });
    let verified = verify(&newer, &root(), &state, &approving(), NOW).expect("good");
    assert_eq!(verified.warnings(), []);
}

/// Attack 25: an earlier note.
#[test]
fn an_older_note_changes_nothing() {
    let mut state = State::default();
    let mut hear = |text, time| {
        let said = announcing(text, time).verify(&root(), &state, NOW);
        let outcome = state.announce(&said.expect("good")).expect("room");
        (
            outcome,
            state.known(&name("wireguard")).expect("known").announced,
        )
    };
    let newest = Some((release("1.6"), NOW));
    assert_eq!(hear("1.6", NOW), (true, newest));
    assert_eq!(hear("1.6", NOW), (false, newest));
    assert_eq!(hear("1.6", NOW - 1), (false, newest));
    assert_eq!(hear("1.5", NOW + 1), (false, newest));
    assert_eq!(
        hear("1.6", NOW + 1),
        (true, Some((release("1.6"), NOW + 1)))
    );
}

#[test]
fn a_note_of_somebody_else_is_refused() {
    let said = |signers: &[u8], announcement: Announcement| {
        let note = signers
            .iter()
            .try_fold(Note::new(announcement), |note, number| {
                note.sign(&key(*number))
            });
        let file = note.expect("room").to_file();
        let note = Note::from_file(&file).expect("signatures are good");
        match note.verify(&root(), &State::default(), NOW) {
            Ok(_) => "accepted",
            Err(refused) => refused.code(),
        }
    };
    let good = || announcing("1.6", NOW).announcement().clone();
    assert_eq!(said(&[31], good()), "accepted");
    assert_eq!(said(&[], good()), "threshold");
    assert_eq!(said(&[99], good()), "threshold");
    // Keys that seal modules do not announce them.
    assert_eq!(said(&[11, 12], good()), "threshold");
    let beyond = Announcement {
        release: release("2.0"),
        ..good()
    };
    assert_eq!(said(&[31], beyond), "delegation");
    let foreign = Announcement {
        root: watm_seal::Digest::of(b"another"),
        ..good()
    };
    assert_eq!(said(&[31], foreign), "unknown-root");
}

#[test]
fn every_flipped_bit_of_a_note_is_refused() {
    let mut file = announcing("1.6", NOW).to_file();
    for at in 0..file.len() {
        assert!(Note::from_file(&file[..at]).is_err());
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            assert!(Note::from_file(&file).is_err(), "byte {at} bit {bit}");
            file[at] ^= 1 << bit;
        }
    }
}
