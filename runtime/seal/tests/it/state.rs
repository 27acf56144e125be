//! The changes of a state: what it learns, approves, revokes and forgets.

use watm_seal::{Announcement, Capabilities, Manifest, Note, Refused, Root, State, verify};

use crate::support::*;

/// Returns version 2 of the root, with another epoch.
fn second() -> Root {
    Root::trust(signed(next(&root(), |record| record.epoch = 2), &[1, 2])).expect("enough")
}

#[test]
fn what_is_known_is_no_news() {
    let nothing = State::default();
    let file = sealed(manifest());
    let verified = verify(&file, &root(), &nothing, &approving(), NOW).expect("good");
    let proof = verified.proof().expect("sealed");
    assert!(nothing.learns_from(proof));
    let mut state = nothing.clone();
    state.accept(&verified);
    assert!(!state.learns_from(proof));
    // The time alone is no news.
    let mut later = state.clone();
    later.accept_proof(proof, NOW + 1);
    assert_eq!(later.greatest_time(), NOW + 1);
    assert!(!later.learns_from(proof));
    let update = Manifest {
        release: release("1.6"),
        ..manifest()
    };
    let file = sealed(update);
    let verified = verify(&file, &root(), &state, &approving(), NOW).expect("good");
    assert!(state.learns_from(verified.proof().expect("sealed")));
}

#[test]
fn a_state_has_room_for_1024_names() {
    let mut state = State::default();
    for number in 0..1024 {
        let approved = state.approve(&name(&format!("module-{number}")), Capabilities::default());
        assert_eq!(approved, Ok(()), "{number}");
    }
    let refused = state.approve(&name("one-more"), Capabilities::default());
    let full = Refused::StateFull {
        name: name("one-more"),
        limit: 1024,
    };
    assert_eq!(refused, Err(full));
    // A name that is known needs no room.
    let again = state.approve(&name("module-7"), Capabilities::default());
    assert_eq!(again, Ok(()));
    assert!(state.forget(&name("module-7")));
    assert_eq!(
        state.approve(&name("one-more"), Capabilities::default()),
        Ok(())
    );
}

#[test]
fn an_approval_is_revoked_and_a_name_forgotten() {
    let mut state = State::default();
    let (own, other) = (name("wireguard"), name("plain"));
    state
        .approve(&own, manifest().capabilities)
        .expect("room for it");
    let known = state.known(&own).expect("known");
    assert_eq!(known.approved, Some(manifest().capabilities));
    assert_eq!(state.names().collect::<Vec<_>>(), [(&own, known)]);
    assert!(!state.revoke(&other));
    assert!(state.revoke(&own));
    assert!(!state.revoke(&own), "it has none any more");
    assert_eq!(state.known(&own).expect("known").approved, None);
    assert!(!state.forget(&other));
    assert!(state.forget(&own));
    assert!(!state.forget(&own), "nothing is known");
    assert_eq!(state, State::default());
}

#[test]
fn the_newer_root_counts() {
    let mut state = State::default();
    assert_eq!(state.newest_root(&root()).expect("the only one"), root());
    state.adopt(&root());
    assert_eq!(state.newest_root(&second()).expect("newer"), second());
    state.adopt(&second());
    assert_eq!(state.root(), Some(&second()));
    assert_eq!(state.newest_root(&root()).expect("older"), second());
}

#[test]
fn a_release_is_announced_once() {
    let note = |text: &str, time| Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release(text),
        time,
    };
    let mut state = State::default();
    let mut is_news = |text, time| state.announce(&note(text, time)).expect("room for it");
    assert!(is_news("1.6", NOW));
    assert!(!is_news("1.6", NOW), "the same");
    assert!(!is_news("1.5", NOW + 1), "an older release");
    assert!(is_news("1.6", NOW + 1));
    assert!(is_news("1.7", NOW));
    let announced = state.known(&name("wireguard")).expect("known").announced;
    assert_eq!(announced, Some((release("1.7"), NOW)));
}

#[test]
fn texts_and_files_come_back_as_they_were() {
    assert_eq!(release("3.14").to_string(), "3.14");
    let file = sealed(manifest());
    let parsed = watm_seal::Sealed::parse(&file).expect("sealed");
    assert_eq!(parsed.file(), file);
    let note = Note::new(Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release("1.6"),
        time: NOW,
    });
    let note = note.sign(&key(31)).expect("signs");
    let read = Note::from_file(&note.to_file()).expect("as it was written");
    assert_eq!(read.announcement(), note.announcement());
}
