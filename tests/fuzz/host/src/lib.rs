//! What a stranger's file can bring to the host, as functions of bytes. `README.md` in the
//! folder above says how to run one under a fuzzer.

mod module;

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[("module", module::run)];
