//! Intervals on the command line and in `watm.toml`, such as `15m`.

use std::time::Duration;

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
