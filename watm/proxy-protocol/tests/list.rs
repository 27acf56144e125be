//! The page of the crate says where each thing is tested.

use std::path::{Path, PathBuf};

/// The file that a test is in, and how it begins there.
fn place(test: &str) -> (PathBuf, String) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (modules, name) = test.rsplit_once("::").expect("a module, and a test");
    match modules.split_once("::") {
        Some((folder, file)) => {
            let folder = own.join("../../../tests").join(folder);
            let begin = format!("def {name}(");
            (folder.join(file).with_extension("py"), begin)
        }
        None => {
            let begin = format!("#[test]\nfn {name}() {{");
            (own.join(modules).with_extension("rs"), begin)
        }
    }
}

#[test]
fn the_list_names_tests_that_there_are() {
    let rows: Vec<&str> = include_str!("../src/lib.rs")
        .lines()
        .skip_while(|line| !line.contains("| what | tests |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("//! | "))
        .collect();
    let numbers: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.split(" | ").next())
        .collect();
    let expected: Vec<String> = (1..=15).map(|number| format!("P{number}")).collect();
    assert_eq!(numbers, expected);
    for row in rows {
        let tests = row.rsplit(" | ").next().expect("a last column");
        for test in tests.trim_end_matches(" |").split(", ") {
            let (file, begin) = place(test.trim_matches('`'));
            let text = std::fs::read_to_string(&file);
            let text = text.unwrap_or_else(|error| panic!("{test}: {}: {error}", file.display()));
            assert!(text.contains(&begin), "{test} is not in {}", file.display());
        }
    }
}
