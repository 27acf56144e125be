//! The page in the book has the words that the parser has, and the networks by name.

use watm_netem::{PRESETS, WORDS};
use watm_schema::page;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/networks.md");

#[test]
fn the_page_has_the_words() {
    page::check(PAGE, &[("network", &WORDS)]);
}

#[test]
fn the_page_has_the_networks_by_name() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    for preset in PRESETS {
        let row = format!(
            "| `{}` | {} | `{}` | `{}` |",
            preset.name, preset.title, preset.up, preset.down
        );
        assert!(page.contains(&row), "{PAGE} has no row {row}");
    }
}
