//! The configuration of a transport that needs none.

use watm_core::{ConfigError, Destination};
use watm_stream::Settings;

fn remote(config: &str) -> Result<Option<Destination>, ConfigError> {
    let mut settings = Settings::parse(config.as_bytes())?;
    let remote = settings.take_destination("remote")?;
    settings.finish()?;
    Ok(remote)
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
    for (text, expected) in [
        ("2", "2"),
        ("0.5 # seconds", "0.5"),
        ("\"2\"", "2"),
        ("\"2\" # seconds", "2"),
    ] {
        let mut settings = Settings::parse(format!("time = {text}").as_bytes()).unwrap();
        assert_eq!(settings.take("time").as_deref(), Some(expected), "{text}");
    }
    for text in ["1.2.3", "-1", "2s", "2 3", ".5", "", "true", "192.0.2.1"] {
        let error = Settings::parse(format!("time = {text}").as_bytes()).unwrap_err();
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
            "line 2: remote is there twice",
        ),
        (
            "port = \"1\"",
            "port: there is no such field; there is remote",
        ),
    ] {
        assert_eq!(
            remote(config).unwrap_err().to_string(),
            message,
            "{config:?}"
        );
    }
    assert!(Settings::parse(b"remote = \"\xff\"").is_err());
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
