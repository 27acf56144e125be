//! The page in the book has the fields that the parser has.

use watm_schema::page;
use watm_stream::SYMMETRIC;

#[test]
fn the_page_has_the_fields() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/plain.md");
    page::check(page, &[("plain", &SYMMETRIC)]);
}
