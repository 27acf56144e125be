//! Points in time as dates, for errors, warnings and commands.

use std::fmt;
use std::str::FromStr;

use crate::Refused;
use crate::bytes::malformed;

/// A day, in seconds.
pub const DAY: u64 = 24 * 60 * 60;

/// Seconds since 1970 in UTC, shown as a date for people: `2026-11-21 09:30 UTC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// Parses the form that `Display` writes, or a date alone (`2026-11-21`), which means its first
/// moment.
impl FromStr for Moment {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Moment, Refused> {
        let moment = parse(text).filter(|moment| {
            // Excludes dates such as 31 February, and other spellings.
            let shown = moment.to_string();
            shown == text || shown.strip_suffix(" 00:00 UTC") == Some(text)
        });
        moment.ok_or_else(|| {
            let reason = format!("{text:?}; must be like 2026-11-21 or 2026-11-21 09:30 UTC");
            malformed("time", reason)
        })
    }
}

fn parse(text: &str) -> Option<Moment> {
    let (date, time) = text.split_once(' ').unwrap_or((text, "00:00 UTC"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u16>().ok());
    let mut part = || date.next().flatten().map(u64::from);
    let (year, month, day) = (part()?, part()?, part()?);
    let (hour, minute) = time.strip_suffix(" UTC")?.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Years begin in March here: see below.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year.checked_sub(1)?, month + 9),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_468 + 1)?;
    Some(Moment(
        days * DAY + u64::from(hour) * 3600 + u64::from(minute) * 60,
    ))
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.0 / DAY, self.0 % DAY);
        /// Days of the years 1970 to 9999.
        const LAST: u64 = 2_932_896;
        if days > LAST {
            return f.write_str("after the year 9999");
        }
        // Days since 1 March of the year 0, so that a leap day is the last of its year.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Months from March on; five of them have 153 days.
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        let year = year + era * 400 + next;
        let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_795_253_400, "2026-11-21 09:30 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59 UTC"),
            (253_402_300_800, "after the year 9999"),
            (u64::MAX, "after the year 9999"),
        ] {
            assert_eq!(Moment(seconds).to_string(), date);
        }
    }

    #[test]
    fn what_is_shown_is_read() {
        for minutes in (0..133_000_000_u64).step_by(54_321) {
            let moment = Moment(minutes * 60);
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
        let day = Moment(1_795_253_400 / DAY * DAY);
        assert_eq!("2026-11-21".parse(), Ok(day));
        for wrong in [
            "",
            "2026-11",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-2-1",
            "1969-12-31",
            "2026-11-21 24:00 UTC",
            "2026-11-21 09:30",
            "2026-11-21T09:30 UTC",
            "99999-01-01",
        ] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }
}
