use std::fmt;

/// A day, in seconds.
pub const DAY: u64 = 24 * 60 * 60;

/// Seconds since 1970 in UTC, shown as a date for people: `2026-11-21 09:30 UTC`.
pub struct Moment(pub u64);

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
}
