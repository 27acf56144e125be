//! Attack 9: modules that do not belong together.

use watm_seal::{Manifest, Policy, State, verify, verify_set};

use crate::support::*;

fn member(of: &str, text: &str, requires: &[(&str, &str)]) -> Vec<u8> {
    sealed(Manifest {
        name: name(of),
        release: release(text),
        requires: requires
            .iter()
            .map(|(of, text)| (name(of), release(text)))
            .collect(),
        ..manifest()
    })
}

fn judge(files: &[&[u8]], state: &State, policy: &Policy) -> &'static str {
    let files: Vec<(&[u8], &Policy)> = files.iter().map(|file| (*file, policy)).collect();
    match verify_set(&files, &root(), state, NOW) {
        Ok(set) => {
            assert_eq!(set.len(), files.len());
            "accepted"
        }
        Err(refused) => refused.code(),
    }
}

#[test]
fn a_set_is_accepted_or_refused_as_a_whole() {
    let nothing = State::default();
    let tls = member("a/tls", "1.3", &[("wireguard", "1.5")]);
    let new = member("wireguard", "1.5", &[("a/tls", "1.3")]);
    let old = member("wireguard", "1.4", &[]);
    for set in [[&tls[..], &new], [&new[..], &tls]] {
        assert_eq!(judge(&set, &nothing, &approving()), "accepted");
    }
    for set in [[&tls[..], &old], [&old[..], &tls]] {
        assert_eq!(judge(&set, &nothing, &approving()), "requires");
    }
    assert_eq!(judge(&[&tls], &nothing, &approving()), "requires");
}

#[test]
fn what_is_here_already_counts() {
    let tls = member("a/tls", "1.3", &[("wireguard", "1.5")]);
    let with = |text: &str| {
        let policy = Policy {
            present: [(name("wireguard"), release(text))].into(),
            ..approving()
        };
        code(verify(&tls, &root(), &State::default(), &policy, NOW))
    };
    assert_eq!(with("1.5"), "accepted");
    assert_eq!(with("1.6"), "accepted");
    assert_eq!(with("1.4"), "requires");
    // In a set, a member replaces the release that is present.
    let policy = Policy {
        present: [(name("wireguard"), release("1.5"))].into(),
        ..approving()
    };
    let old = member("wireguard", "1.4", &[]);
    let set = [&tls[..], &old];
    assert_eq!(judge(&set, &State::default(), &policy), "requires");
}

#[test]
fn a_floor_or_a_root_of_one_holds_for_those_before_it() {
    let old = member("wireguard", "1.4", &[]);
    let with_floor = sealed(Manifest {
        name: name("a/tls"),
        floors: [(name("wireguard"), release("1.5"))].into(),
        ..manifest()
    });
    let nothing = State::default();
    for set in [[&old[..], &with_floor], [&with_floor[..], &old]] {
        assert_eq!(judge(&set, &nothing, &approving()), "rollback");
    }
    let rotation = signed(
        next(&root(), |record| {
            record.delegations[1].keys = [12, 13].map(|number| key(number).public()).into();
            record.revoked = [key(11).public()].into();
        }),
        &[1, 2],
    );
    let other = Manifest {
        name: name("a/tls"),
        ..manifest()
    };
    let other = watm_seal::seal(&body(), other, &[rotation], &keys(&[12, 13]));
    let other = other.expect("sealed");
    for set in [[&old[..], &other], [&other[..], &old]] {
        assert_eq!(judge(&set, &nothing, &approving()), "revoked");
    }
}
