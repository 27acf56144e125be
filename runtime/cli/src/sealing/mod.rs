//! Options of the commands that seal and trust: keys, the state, and the expected seal. The
//! descriptions are in `watm-sealing`.

mod expected;
mod keys;
mod state;

use std::fmt::Display;
use std::path::Path;

pub(crate) use expected::Expected;
pub(crate) use keys::{DelegatedKeyOptions, KeyOptions, new_passphrase};
pub(crate) use state::{StateOptions, root as trusted_root, update};

use crate::failure::Failure;

/// Makes a failure for an unusable file, as [`watm_sealing::invalid`] describes it.
pub(crate) fn invalid(path: &Path, reason: impl Display) -> Failure {
    watm_sealing::invalid(path, reason).into()
}
