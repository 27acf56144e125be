//! libFuzzer around one target: the one that `FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = targets::TARGETS.iter().find(|(name, _)| *name == wanted);
    let names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    found
        .unwrap_or_else(|| panic!("FUZZ_TARGET is '{wanted}', not one of {}", names.join(", ")))
        .1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
