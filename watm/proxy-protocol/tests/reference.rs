//! The page in the book has the fields that the parser has.

use watm_proxy_protocol::FIELDS;
use watm_schema::page;

#[test]
fn the_page_has_the_fields() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/src/proxy-protocol.md"
    );
    page::check(page, &[("proxy-protocol", &FIELDS)]);
}
