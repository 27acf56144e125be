//! Texts of modules and strangers, made safe for logs and errors.

use std::borrow::Cow;

/// Returns the text cut to `max` bytes and without control characters, so that a module cannot
/// forge records or write to a terminal.
pub fn printable(text: &str, max: usize) -> Cow<'_, str> {
    let text = cut(text, max);
    if text.contains(char::is_control) {
        // The replacement is longer than the character that it replaces.
        let text = text.replace(char::is_control, "\u{fffd}");
        Cow::Owned(cut(&text, max).to_owned())
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the text on one line: its words with single spaces, [`printable`], and at most `max` bytes.
pub fn one_line(text: &str, max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" "), max).into_owned()
}

/// Returns the text cut to `max` bytes, at a character.
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::{one_line, printable};

    #[test]
    fn control_characters_are_replaced_and_length_is_cut_at_a_character() {
        assert_eq!(printable("a\n\x1b[31mb", 100), "a\u{fffd}\u{fffd}[31mb");
        assert_eq!(printable("aäb", 2), "a");
        assert_eq!(printable("plain", 100), "plain");
        assert_eq!(printable("\n\n\n", 8), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_text_of_several_lines_becomes_one() {
        let backtrace = "at:\n    0: evil\r\n\x1b[2Jforged\n";
        assert_eq!(one_line(backtrace, 100), "at: 0: evil \u{fffd}[2Jforged");
        assert_eq!(one_line(backtrace, 5), "at: 0");
    }
}
