//! Shared parts of the commands that seal and trust: descriptions in JSON, keys, and the state.

mod capabilities;
mod expected;
mod files;
mod keys;
mod manifest;
mod root;
mod state;

pub(crate) use capabilities::{CapabilitiesText, texts};
pub(crate) use expected::Expected;
pub(crate) use files::{invalid, now, parse_json, read_complete_root, read_root, write_output};
pub(crate) use keys::{DelegatedKeyOptions, KeyOptions, new_passphrase};
pub(crate) use manifest::ManifestText;
pub(crate) use root::RootText;
pub(crate) use state::{StateOptions, root as trusted_root, update};
