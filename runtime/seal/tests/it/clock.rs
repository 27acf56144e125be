//! Attack 18: the clock is set back, or forward.

use watm_seal::{DAY, Manifest, State, Verified, check_running, verify};

use crate::support::*;

const YEAR: u64 = 366 * DAY;

fn at<'a>(file: &'a [u8], state: &State, now: u64) -> Result<Verified<'a>, watm_seal::Refused> {
    verify(file, &root(), state, &approving(), now)
}

/// Returns the state of a host whose clock has shown this time.
fn seen(now: u64) -> State {
    let long = sealed(Manifest {
        name: name("a/long"),
        expires: NOW + 900 * DAY,
        ..manifest()
    });
    let mut state = State::default();
    state.accept(&at(&long, &state, now).expect("good"));
    assert_eq!(state.greatest_time(), now);
    state
}

#[test]
fn a_clock_set_back_brings_no_expired_module_back() {
    let file = sealed(manifest());
    let after = manifest().expires + DAY;
    assert_eq!(
        code(at(&file, &State::default(), after - 30 * DAY)),
        "accepted"
    );
    let state = seen(after);
    assert_eq!(code(at(&file, &state, after - 30 * DAY)), "expired");
    // A warning is given, and nothing is rolled back.
    let newer = sealed(Manifest {
        expires: NOW + 200 * DAY,
        ..manifest()
    });
    let verified = at(&newer, &state, after - 30 * DAY).expect("good");
    assert_eq!(verified.warnings()[0].code(), "clock-behind");
    let mut state = state;
    state.accept(&verified);
    assert_eq!(state.greatest_time(), after);
    // A clock that is slightly behind causes no warning.
    assert_eq!(
        at(&newer, &state, after - DAY).expect("good").warnings(),
        []
    );
}

#[test]
fn a_clock_once_far_ahead_does_not_brick_the_host() {
    let state = seen(NOW + 2 * YEAR);
    let file = sealed(manifest());
    let verified = at(&file, &state, NOW).expect("good at the time of the clock");
    assert_eq!(verified.warnings()[0].code(), "clock-behind");
    // The accepted release is still a lower bound.
    let mut state = state;
    state.accept(&verified);
    let older = sealed(Manifest {
        release: release("1.4"),
        ..manifest()
    });
    assert_eq!(code(at(&older, &state, NOW)), "rollback");
    assert_eq!(state.greatest_time(), NOW + 2 * YEAR);
}

#[test]
fn an_expiry_far_off_is_said() {
    let file = sealed(Manifest {
        expires: u64::MAX,
        ..manifest()
    });
    let verified = at(&file, &State::default(), NOW).expect("good");
    assert_eq!(verified.warnings()[0].code(), "expiry-far-off");
    assert!(verified.warnings()[0].to_string().contains("9999"));
}

/// Attack 7: a running module continues, with a warning.
#[test]
fn a_running_module_warns_before_and_after_it_expires() {
    let state = State::default();
    let code = |now| {
        let warnings = check_running(&manifest(), &state, &approving(), now);
        warnings.first().map(|warning| warning.code())
    };
    let expires = manifest().expires;
    assert_eq!(code(NOW), None);
    assert_eq!(code(expires - 14 * DAY - 1), None);
    assert_eq!(code(expires - 14 * DAY), Some("expires-soon"));
    assert_eq!(code(expires - 1), Some("expires-soon"));
    assert_eq!(code(expires), Some("expired"));
}
