//! The page of the crate says where each attack is tested.

use std::path::Path;

/// The file that a test of the table is in, and its name.
fn place(test: &str) -> (std::path::PathBuf, &str) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let (folder, path) = match test.strip_prefix("host::") {
        Some(path) => (own.join("../../../tests/it"), path),
        None => (own, test),
    };
    let (modules, name) = path.rsplit_once("::").expect("a module, and a test");
    (
        folder.join(modules.replace("::", "/")).with_extension("rs"),
        name,
    )
}

#[test]
fn the_table_of_attacks_names_tests_that_there_are() {
    let rows: Vec<&str> = include_str!("../../src/lib.rs")
        .lines()
        .skip_while(|line| !line.contains("| attack | outcome | tests |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("//! | "))
        .collect();
    let numbers: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.split(" | ").next())
        .collect();
    assert_eq!(
        numbers,
        (1..=25)
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
    );
    for row in rows {
        let tests = row.rsplit(" | ").next().expect("a last column");
        let tests: Vec<&str> = tests.trim_end_matches(" |").split(", ").collect();
        assert!(!tests.is_empty());
        for test in tests {
            let (file, name) = place(test.trim_matches('`'));
            let text = std::fs::read_to_string(&file);
            let text = text.unwrap_or_else(|error| panic!("{test}: {}: {error}", file.display()));
            let written = format!("#[test]\nfn {name}() {{");
            assert!(
                text.contains(&written),
                "{test} is not in {}",
                file.display()
            );
        }
    }
}
