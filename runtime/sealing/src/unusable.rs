//! Reasons why a file cannot be used. Every function of the crate that reads or writes one returns
//! them.

use std::fmt;
use std::path::Path;

use watm_types::printable;

/// The longest reason, in bytes: a sentence with a few names in it.
const LONGEST_REASON: usize = 700;

/// The reason why a file or a terminal cannot be used, which names it.
#[derive(Debug)]
pub struct Unusable(pub(crate) String);

/// Makes the reason for an unusable file. It may repeat parts of the file: it becomes one line of
/// bounded length.
pub fn invalid(path: &Path, reason: impl fmt::Display) -> Unusable {
    let reason = reason.to_string();
    let reason = printable(&reason, LONGEST_REASON);
    Unusable(format!("{}: {reason}", path.display()))
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}
