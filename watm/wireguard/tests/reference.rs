//! The page in the book has the fields that the parsers have.

use watm_netem::WORDS;
use watm_schema::page;
use watm_wireguard::fields::{INTERFACE, MITMPROXY, PEER, WATM};

#[test]
fn the_page_has_the_fields() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/wireguard.md");
    let tables: [(&str, &[_]); 5] = [
        ("interface", &INTERFACE),
        ("peer", &PEER),
        ("watm", &WATM),
        ("mitmproxy", &MITMPROXY),
        ("network", &WORDS),
    ];
    page::check(page, &tables);
}
