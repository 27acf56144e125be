//! The page in the book has the fields that the parser has.

use watm_schema::page;
use watm_tun::FIELDS;

#[test]
fn the_page_has_the_fields() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/tun.md");
    page::check(page, &[("tun", &FIELDS)]);
}
