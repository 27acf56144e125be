//! Judgement of the clock: `verify` and `freshness` use it to handle clocks that are set back.

use crate::policy::Warning;
use crate::time::DAY;

/// The difference that a clock may have without a warning: as much as a mistaken time zone.
const TOLERANCE: u64 = DAY;
/// The lead beyond which an earlier clock reading counts as wrong. A host that was once in 2106
/// must not refuse every module from then on.
const IMPLAUSIBLE: u64 = 366 * DAY;
/// The validity beyond which a module gets a warning. Nobody intends to hold a module back for
/// longer.
const FAR_OFF: u64 = 2 * 366 * DAY;

/// Returns the time to judge by: the clock's, or the greatest that it has shown before, so that
/// setting the clock back does not revive expired modules.
///
/// Setting it back by more than a year does revive them, with a warning. This is the price of not
/// bricking a host whose clock was once ahead. An attacker gains little, since accepted releases
/// and floors do not depend on any clock.
pub(crate) fn judge(now: u64, greatest: u64) -> (u64, Option<Warning>) {
    let behind = greatest.saturating_sub(now);
    let warning = (behind > TOLERANCE).then_some(Warning::ClockBehind { now, greatest });
    match behind > IMPLAUSIBLE {
        true => (now, warning),
        false => (now.max(greatest), warning),
    }
}

/// Returns the warning for a module with this expiry, all times in seconds since 1970.
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
