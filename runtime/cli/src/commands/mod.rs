//! The commands, in a file or folder each. `main` of `lib.rs` calls `run` of the one that the user
//! names.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dial;
pub(crate) mod doctor;
pub(crate) mod inspect;
pub(crate) mod keygen;
pub(crate) mod listen;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod note;
pub(crate) mod pluggable;
pub(crate) mod publish;
pub(crate) mod relay;
pub(crate) mod replay;
pub(crate) mod root;
pub(crate) mod seal;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod tunnel;
pub(crate) mod update;
pub(crate) mod verify;
