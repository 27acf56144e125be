//! The page in the book has the fields that the parsers have.

use watm_schema::page;
use watm_wireguard::fields::{INTERFACE, MITMPROXY, PEER, WATM};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/wireguard.md");

#[test]
fn the_page_has_the_fields() {
    let tables: [(&str, &[_]); 4] = [
        ("interface", &INTERFACE),
        ("peer", &PEER),
        ("watm", &WATM),
        ("mitmproxy", &MITMPROXY),
    ];
    page::check(PAGE, &tables);
}
