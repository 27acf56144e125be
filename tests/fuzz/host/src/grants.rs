//! The text of `grants.toml`.

use watm_runtime::{Error, Grants};

use crate::{check_line, with_file};

pub fn run(input: &[u8]) {
    let read = |content: &[u8]| {
        with_file(content, |path| {
            let name = path.display().to_string();
            (Grants::read(path), name)
        })
    };
    let grants = match read(input) {
        (Ok(grants), _) => format!("{grants:?}"),
        (Err(error), name) => {
            // A file that is not text has no line.
            if let Error::Options(reason) = &error {
                check_line(&error, &name);
                let is_long = input.len() > 1 << 20;
                assert!(
                    is_long || reason.contains(": line "),
                    "on which line? {reason}"
                );
            }
            return;
        }
    };
    // Comments change nothing.
    let same = |content: Vec<u8>| {
        let (again, _) = read(&content);
        let again = again.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format!("{again:?}"), grants);
    };
    same([b"# first\n", input, b"\n# last"].concat());
}
