//! Times on the command line and in `watm.toml`: intervals such as `15m`, and seconds such as `2.5`.

use std::str::FromStr;
use std::time::Duration;

use serde_derive::Deserialize;

/// The longest time, in seconds: a year.
const LONGEST: f64 = 366.0 * 24.0 * 3600.0;

/// Parses a positive number with its unit: `s`, `m`, `h` or `d`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let refused = || "must be a number above 0 with s, m, h or d, such as 15m".to_owned();
    let unit = text.chars().last().ok_or_else(refused)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(refused()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| refused())?;
    match number.checked_mul(seconds) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(refused()),
    }
}

/// A time in seconds, which may have a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Seconds(Duration);

impl Seconds {
    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// Returns `None` for 0, which means never.
    pub(crate) fn or_never(self) -> Option<Duration> {
        Some(self.0).filter(|time| !time.is_zero())
    }
}

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Seconds, String> {
        let fits = (0.0..=LONGEST).contains(&seconds);
        let time = fits.then(|| Duration::try_from_secs_f64(seconds).ok());
        time.flatten()
            .map(Seconds)
            .ok_or_else(|| "must be a number of seconds from 0 to a year, such as 2.5".to_owned())
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        Seconds::try_from(text.parse().unwrap_or(f64::NAN))
    }
}

impl TryFrom<toml::Value> for Seconds {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Seconds, String> {
        Seconds::try_from(match value {
            toml::Value::Integer(seconds) => f64::from(i32::try_from(seconds).unwrap_or(-1)),
            // Configurations of some modules quote their numbers.
            toml::Value::String(text) => return text.parse(),
            other => other.as_float().unwrap_or(f64::NAN),
        })
    }
}
