//! Every input of the corpus, once more.

use std::collections::BTreeSet;
use std::panic;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("readable").file_name())
        .map(|name| name.into_string().expect("text"))
        .collect()
}

#[test]
fn the_corpus_has_a_folder_for_each_target_and_no_other() {
    let targets = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(names(&corpus()), targets.collect());
}

#[test]
fn every_input_of_the_corpus_passes() {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = targets::TARGETS
            .iter()
            .map(|(name, target)| scope.spawn(|| failures(name, *target)))
            .collect();
        runs.into_iter()
            .flat_map(|run| run.join().expect("panics are caught"))
            .collect()
    });
    assert!(failed.is_empty(), "these fail: {}", failed.join(", "));
}

/// The inputs that the target panics on.
fn failures(target: &str, run: targets::Target) -> Vec<String> {
    let folder = corpus().join(target);
    let inputs = names(&folder);
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
        .into_iter()
        .filter(|input| {
            let bytes = std::fs::read(folder.join(input)).expect("readable");
            panic::catch_unwind(|| run(&bytes)).is_err()
        })
        .map(|input| format!("{target}/{input}"))
        .collect()
}
