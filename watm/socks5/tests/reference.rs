//! The page in the book has the fields that the parser has.

use watm_schema::page;
use watm_socks5::{FIELDS, USER};

#[test]
fn the_page_has_the_fields() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/socks5.md");
    page::check(page, &[("socks5", &FIELDS), ("user", &USER)]);
}
