//! The page in the book has the fields that the parser has.

use watm_schema::page;
use watm_tls::fields;

#[test]
fn the_page_has_the_fields() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/tls.md");
    let tables: [(&str, &[_]); 7] = [
        ("tls", &fields::ROOT),
        ("certificates", &fields::CERTIFICATE),
        ("clients", &fields::CLIENTS),
        ("tickets", &fields::TICKETS),
        ("limits", &fields::LIMITS),
        ("proxy-out", &fields::PROXY_OUT),
        ("server", &fields::SERVER),
    ];
    page::check(page, &tables);
}
