//! The configuration of `watm serve`.

use crate::{check_text, with_file};

pub fn run(input: &[u8]) {
    let accepts = |content: &[u8]| {
        with_file(content, |path| {
            let checked = watm_cli::check_serve_file(path);
            if let Err(error) = &checked {
                check_text(error, &path.display().to_string());
            }
            checked.is_ok()
        })
    };
    let accepted = accepts(input);
    // A comment changes nothing.
    assert_eq!(accepts(&[input, b"\n# last"].concat()), accepted);
}
