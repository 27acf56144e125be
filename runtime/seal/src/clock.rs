use crate::policy::Warning;
use crate::time::DAY;

/// A clock may be off by this much without a word: time zones that were mistaken for another.
const TOLERANCE: u64 = DAY;
/// When a clock was ahead of today's by more than this, it was wrong then: a host that had once
/// been in 2106 is not to refuse everything for the rest of its life.
const IMPLAUSIBLE: u64 = 366 * DAY;
/// Nobody means to have a module held back for longer.
const FAR_OFF: u64 = 2 * 366 * DAY;

/// The time to judge by: the clock's, or the greatest that it has shown before, so that setting
/// it back does not bring expired modules back.
///
/// Setting it back by more than a year does, with a warning. That is what it costs not to brick a
/// host whose clock was once ahead, and it gains the attacker little: the releases that have been
/// accepted and the floors do not depend on any clock.
pub(crate) fn judge(now: u64, greatest: u64) -> (u64, Option<Warning>) {
    let behind = greatest.saturating_sub(now);
    let warning = (behind > TOLERANCE).then_some(Warning::ClockBehind { now, greatest });
    match behind > IMPLAUSIBLE {
        true => (now, warning),
        false => (now.max(greatest), warning),
    }
}

/// What to say about a module that expires then.
pub(crate) fn expiry(expires: u64, time: u64, warn_before: u64) -> Option<Warning> {
    if time >= expires {
        return Some(Warning::Expired { expires });
    }
    match expires - time {
        left if left <= warn_before => Some(Warning::ExpiresSoon { expires }),
        left if left > FAR_OFF => Some(Warning::ExpiryFarOff { expires }),
        _ => None,
    }
}
