//! The description of a module in JSON.

use watm_schema::about::{About, Format, Steer, TCP_AND_UDP, length, render};
use watm_schema::{Described, Field, Kind};

const FIELDS: [Described; 4] = [
    (
        Field::number("idle", "seconds", 0, u64::MAX).or_number(90),
        "The \"idle\" time\n.",
    ),
    (Field::choice("mode", &["one", "two"]).or("two"), "A \\."),
    (Field::new("to", Kind::Text("a host")).required(), "Où."),
    (Field::new("more", Kind::Table("other")), "More."),
];

const ABOUT: About = About {
    name: "x",
    title: "X",
    summary: "Nothing.",
    accepts: true,
    dials: false,
    sockets: TCP_AND_UDP,
    destinations: true,
    alone: false,
    port: Some(65535),
    client: None,
    steer: &[Steer { kind: 2, byte: 11 }, Steer { kind: 4, byte: 7 }],
    formats: &[
        Format {
            name: "json",
            tables: &[("x", &FIELDS), ("other", &[])],
        },
        Format {
            name: "none",
            tables: &[],
        },
    ],
};

#[test]
fn a_description_is_json() {
    const LENGTH: usize = length(&ABOUT);
    const BYTES: [u8; LENGTH] = render(&ABOUT);
    let expected = concat!(
        r#"{"about":1,"name":"x","title":"X","summary":"Nothing.","accepts":true,"dials":false,"#,
        r#""destinations":true,"alone":false,"port":65535,"#,
        r#""steer":[{"type":2,"byte":11},{"type":4,"byte":7}],"#,
        r#""sockets":[{"label":"listen","transport":"tcp"},{"label":"listen","transport":"udp"}],"formats":["#,
        r#"{"name":"json","tables":[{"name":"x","fields":["#,
        r#"{"name":"idle","kind":"number","unit":"seconds","least":0,"most":18446744073709551615,"default":90,"#,
        r#""meaning":"The \"idle\" time\u000a."},"#,
        r#"{"name":"mode","kind":"choice","words":["one","two"],"default":"two","meaning":"A \\."},"#,
        r#"{"name":"to","kind":"text","expected":"a host","required":true,"meaning":"Où."},"#,
        r#"{"name":"more","kind":"table","table":"other","absent":"none","meaning":"More."}]},"#,
        r#"{"name":"other","fields":[]}]},{"name":"none","tables":[]}]}"#,
    );
    assert_eq!(std::str::from_utf8(&BYTES), Ok(expected));
}

#[test]
#[should_panic(expected = "the length is that of another description")]
fn another_length_is_a_mistake() {
    render::<10>(&ABOUT);
}
