//! Sizes on the command line, such as `64MiB`. Used by `reporting::capture`.

/// Parses a number of bytes above 0, with the unit `KiB`, `MiB` or `GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let found = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.parse::<u64>().ok()?, shift)));
    found
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "must be a number above 0 with KiB, MiB or GiB, such as 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(size("256KiB"), Ok(256 << 10));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for wrong in [
            "",
            "64",
            "64MB",
            "0MiB",
            "-1MiB",
            "1.5GiB",
            "99999999999999GiB",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
