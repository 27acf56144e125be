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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_253_400;

    #[test]
    fn a_greater_time_is_believed_up_to_a_year_ahead() {
        for (behind, believed, warned) in [
            (0, true, false),
            (DAY, true, false),
            (DAY + 1, true, true),
            (366 * DAY, true, true),
            (366 * DAY + 1, false, true),
        ] {
            let greatest = NOW + behind;
            let (time, warning) = judge(NOW, greatest);
            let expected = if believed { greatest } else { NOW };
            assert_eq!(time, expected, "{behind}");
            assert_eq!(warning.is_some(), warned, "{behind}");
        }
        assert_eq!(judge(NOW, 0), (NOW, None));
    }

    #[test]
    fn an_expiry_is_soon_or_far_off_by_the_second() {
        let code = |left: u64| expiry(NOW + left, NOW, DAY).map(|warning| warning.code());
        assert_eq!(code(0), Some("expired"));
        assert_eq!(code(1), Some("expires-soon"));
        assert_eq!(code(DAY), Some("expires-soon"));
        assert_eq!(code(DAY + 1), None);
        assert_eq!(code(732 * DAY), None);
        assert_eq!(code(732 * DAY + 1), Some("expiry-far-off"));
        let past = expiry(NOW, NOW + 1, DAY);
        assert_eq!(past, Some(Warning::Expired { expires: NOW }));
    }
}
