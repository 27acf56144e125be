//! Sealing by descriptions: roots, manifests and capabilities in JSON as people write them, their
//! files, and the files of private keys.
//!
//! The command `watm` uses it, and so does the program that seals the modules of a wheel
//! (`host-python/packaging`), which is built without the compiler of modules.

mod capabilities;
mod files;
mod keys;
mod manifest;
mod root;
mod unusable;
mod words;

pub use capabilities::{CapabilitiesText, texts};
pub use files::{now, parse_json, read, read_complete_root, read_root, write_output};
pub use keys::{ask, open_key, write_new_key};
pub use manifest::ManifestText;
pub use root::RootText;
pub use unusable::{Unusable, invalid};
pub use words::{counted, grouped};
