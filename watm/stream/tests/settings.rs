//! The configuration of a transport that needs none.

use watm_core::{ConfigError, Destination};
use watm_schema::{Field, Kind, fields};
use watm_stream::{SYMMETRIC, Settings};

static REMOTE: [Field; 1] = fields(&SYMMETRIC);

fn remote(config: &str) -> Result<Option<Destination>, ConfigError> {
    Settings::parse(config.as_bytes(), &REMOTE)?.take_parsed("remote")
}

#[test]
fn nothing_is_a_configuration() {
    for config in ["", "\n\n", "# nothing\n  # here"] {
        assert_eq!(remote(config), Ok(None), "{config:?}");
    }
}

#[test]
fn an_address_or_a_name_is_read() {
    let name = Destination::Name("example.com".to_owned(), 443);
    for config in [
        "remote = \"example.com:443\"",
        "# where to\r\n\tremote=\"example.com:443\" # there\r\n",
    ] {
        assert_eq!(remote(config), Ok(Some(name.clone())), "{config:?}");
    }
    for address in ["192.0.2.1:80", "[2001:db8::1]:80"] {
        let parsed = remote(&format!("remote = \"{address}\""));
        let expected = Destination::Address(address.parse().unwrap());
        assert_eq!(parsed, Ok(Some(expected)));
    }
}

#[test]
fn a_number_needs_no_quotes() {
    static TIME: [Field; 1] = [Field::new("time", Kind::Text("a time"))];
    let parse = |text: &str| Settings::parse(format!("time = {text}").as_bytes(), &TIME);
    for (text, expected) in [
        ("2", "2"),
        ("0.5 # seconds", "0.5"),
        ("\"2\"", "2"),
        ("\"2\" # seconds", "2"),
    ] {
        let mut settings = parse(text).unwrap();
        assert_eq!(settings.take("time").as_deref(), Some(expected), "{text}");
    }
    for text in ["1.2.3", "-1", "2s", "2 3", ".5", "", "true", "192.0.2.1"] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().contains("time: expected"), "{error}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (config, message) in [
        ("remote", "line 1: expected key = \"value\""),
        (
            "\n = \"x\"",
            "line 2: expected a key of letters, digits, '_' and '-' before '='",
        ),
        (
            "remote = x:1",
            "line 1: remote: expected a value in double quotes",
        ),
        (
            "remote = \"x:1",
            "line 1: remote: expected a value in double quotes",
        ),
        (
            "remote = \"x:1\" y",
            "line 1: remote: expected a value in double quotes",
        ),
        (
            "remote = \"x\\n:1\"",
            "line 1: remote: expected a value in double quotes",
        ),
        (
            "remote = \"x:1\"\nremote = \"y:1\"",
            "line 2: duplicate key remote",
        ),
        (
            "port = \"1\"",
            "port: unknown field; expected one of remote",
        ),
    ] {
        assert_eq!(
            remote(config).unwrap_err().to_string(),
            message,
            "{config:?}"
        );
    }
    assert!(Settings::parse(b"remote = \"\xff\"", &REMOTE).is_err());
}

#[test]
fn what_is_no_place_to_connect_to_is_refused() {
    for text in [
        "",
        "example.com",
        ":443",
        "example.com:0",
        "example.com:65536",
        "a b:1",
        "192.0.2.1:0",
        "2001:db8::1:80",
    ] {
        let error = remote(&format!("remote = \"{text}\""))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("remote: expected a host and a port"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_value_is_one_that_its_field_admits() {
    static FIELDS: [Field; 2] = [
        Field::number("time", "seconds", 3, 300).or_number(5),
        Field::choice("mode", &["each", "first"]).or("first"),
    ];
    let settings = |text: &str| Settings::parse(text.as_bytes(), &FIELDS).unwrap();
    assert_eq!(settings("").take_number("time"), Ok(5));
    assert_eq!(settings("time = 300").take_number("time"), Ok(300));
    assert_eq!(settings("").take_choice("mode"), Ok("first"));
    assert_eq!(settings("mode = \"each\"").take_choice("mode"), Ok("each"));
    for text in ["time = 2", "time = \"x\"", "time = 301", "time = 3.5"] {
        let error = settings(text).take_number("time").unwrap_err().to_string();
        assert_eq!(error, "time: expected a number of seconds from 3 to 300");
    }
    let error = settings("mode = \"all\"").take_choice("mode").unwrap_err();
    assert_eq!(error.to_string(), "mode: expected \"each\" or \"first\"");
}
