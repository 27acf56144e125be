//! The page in the book has the fields that the parsers have, and the networks by name.

use watm_netem::{PRESETS, WORDS};
use watm_schema::page;
use watm_wireguard::fields::{INTERFACE, MITMPROXY, PEER, WATM};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/wireguard.md");

#[test]
fn the_page_has_the_fields() {
    let tables: [(&str, &[_]); 5] = [
        ("interface", &INTERFACE),
        ("peer", &PEER),
        ("watm", &WATM),
        ("mitmproxy", &MITMPROXY),
        ("network", &WORDS),
    ];
    page::check(PAGE, &tables);
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
