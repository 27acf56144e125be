//! Tables of fields: what parsers get of them, and their pages.

use watm_schema::page::with_tables;
use watm_schema::{Described, Field, HOST_AND_PORT, Kind, field, fields, names};

const TABLE: [Described; 4] = [
    (
        Field::number("idle", "seconds", 60, 300).or_number(90),
        "The idle time.",
    ),
    (
        Field::choice("mode", &["one", "two", "three"]).or("two"),
        "The mode.",
    ),
    (
        Field::new("remote", HOST_AND_PORT).required(),
        "The destination.",
    ),
    (Field::switch("quiet"), "Says nothing."),
];
static FIELDS: [Field; 4] = fields(&TABLE);

#[test]
fn a_parser_gets_ranges_choices_and_defaults() {
    const IDLE: Field = field(&FIELDS_AT_COMPILE_TIME, "idle");
    const FIELDS_AT_COMPILE_TIME: [Field; 4] = fields(&TABLE);
    assert_eq!((IDLE.range(), IDLE.default_number()), (60..=300, 90));
    assert_eq!(IDLE.parse_number("60"), Ok(60));
    for text in ["59", "301", "-1", "x", ""] {
        let error = IDLE.parse_number(text).unwrap_err();
        assert_eq!(error, "expected a number of seconds from 60 to 300");
    }
    let mode = field(&FIELDS, "mode");
    assert_eq!(mode.parse_choice(None), Ok("two"));
    assert_eq!(mode.parse_choice(Some("three")), Ok("three"));
    assert_eq!(
        mode.parse_choice(Some("four")).unwrap_err(),
        "expected \"one\", \"two\" or \"three\""
    );
    assert_eq!(names(&FIELDS), "idle, mode, remote, quiet");
}

#[test]
#[should_panic(expected = "no field has this name")]
fn a_name_that_no_field_has_is_found() {
    field(&FIELDS, "idl");
}

#[test]
fn a_page_gets_its_tables() {
    let page = "# x\n\n<!-- fields: x -->old<!-- end -->\n\nmore\n";
    let written = with_tables(page, &[("x", &TABLE)]).unwrap();
    let table = "| field | value | default | meaning |\n|---|---|---|---|\n\
         | `idle` | a number of seconds from 60 to 300 | 90 | The idle time. |\n\
         | `mode` | `one`, `two` or `three` | `two` | The mode. |\n\
         | `remote` | a host and a port, such as `example.com:443` or `[2001:db8::1]:443` | required | The destination. |\n\
         | `quiet` | true or false | `false` | Says nothing. |\n";
    assert_eq!(
        written,
        format!("# x\n\n<!-- fields: x -->\n\n{table}\n<!-- end -->\n\nmore\n")
    );
    // A second run leaves the page unchanged.
    assert_eq!(with_tables(&written, &[("x", &TABLE)]).unwrap(), written);
}

#[test]
fn a_page_without_a_place_for_a_table_or_with_one_for_no_table_is_an_error() {
    let empty: &[Described] = &[(Field::new("a", Kind::Text("text")), "A text.")];
    for (page, tables) in [
        ("no place", &[("x", empty)][..]),
        ("<!-- fields: y --><!-- end -->", &[("x", empty)]),
        ("<!-- fields: x -->", &[("x", empty)]),
        ("<!-- fields: x --><!-- end -->", &[]),
    ] {
        assert!(with_tables(page, tables).is_err(), "{page}");
    }
}
