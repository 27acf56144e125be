//! Numbers for people. Used by `capabilities`, and by the command `watm` in its own words.

/// Formats a number with its noun: `1 flow`, `1,048,576 flows`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let text = number.to_string();
    let mut said = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            said.push(',');
        }
        said.push(digit);
    }
    said
}
