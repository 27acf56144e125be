//! Each field with a wrong value: the error names it, and says what is expected.

mod support;

use support::{Authority, quote, refused, tls};
use watm_stream::StreamTransport;

#[test]
fn what_is_wrong_is_named() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let other = authority.sign(&["example.com"], "example.com");
    let root = quote(&authority.pem());
    let served = format!("\"certificates\": [{}]", pair.json());
    let with = |more: &str| format!("{{{served}, {more}}}");
    let chain = quote(&pair.chain);
    let key = quote(&pair.key);
    for (config, expected) in [
        ("nonsense".to_owned(), "expected JSON, or certificates"),
        ("{".to_owned(), "EOF"),
        ("{} {}".to_owned(), "trailing"),
        ("{\"nonsense\": 1}".to_owned(), "nonsense"),
        (
            "{\"alpn\": [\"h2\"]}".to_owned(),
            "alpn: supported for accepted connections only",
        ),
        (with("\"alpn\": [\"\"]"), "alpn[0]: expected a protocol"),
        (with("\"alpn\": \"h2\""), "alpn: invalid type"),
        (with("\"versions\": []"), "versions: expected"),
        (
            with("\"versions\": [\"1.1\"]"),
            "versions[0]: unknown variant",
        ),
        (
            with("\"ciphers\": []"),
            "ciphers: expected some of TLS_CHACHA20",
        ),
        (
            with("\"ciphers\": [\"RC4\"]"),
            "ciphers[0]: unknown cipher; expected one of TLS_",
        ),
        (with("\"no-match\": \"maybe\""), "no-match: unknown variant"),
        (
            with("\"limits\": {\"idle\": 0}"),
            "limits.idle: expected a number of seconds",
        ),
        (
            with("\"limits\": {\"idel\": 1}"),
            "limits.idel: unknown field",
        ),
        (
            with("\"tickets\": {\"secret\": \"short\"}"),
            "tickets.secret: expected at least 32",
        ),
        (
            with("\"tickets\": {\"hours\": 0}"),
            "tickets.hours: expected a number",
        ),
        (with("\"tickets\": 3"), "tickets: expected true, false or"),
        (
            with("\"proxy-in\": {\"from\": \"nobody\"}"),
            "proxy-in.from: ",
        ),
        (with("\"proxy-in\": {\"form\": \"any\"}"), "proxy-in.form: "),
        (
            with("\"proxy-in\": {\"from\": \"\\\"\"}"),
            "proxy-in.from: expected a text without quotes",
        ),
        (
            with("\"proxy-out\": {}"),
            "proxy-out: missing field `version`",
        ),
        (
            with("\"proxy-out\": {\"version\": \"v1\", \"unique-id\": true}"),
            "proxy-out.unique-id: needs version v2",
        ),
        (
            with("\"clients\": {}"),
            "clients: missing field `certificates`",
        ),
        (
            with("\"clients\": {\"certificates\": \"required\"}"),
            "clients.roots: missing",
        ),
        (
            with(&format!(
                "\"clients\": {{\"certificates\": \"none\", \"roots\": {root}}}"
            )),
            "clients.certificates: expected",
        ),
        (
            with(&format!(
                "\"clients\": {{\"certificates\": \"required\", \"roots\": {root}, \"allow\": [\"alice\"]}}"
            )),
            "clients.allow[0]: expected cn:",
        ),
        (
            with("\"clients\": {\"certificates\": \"required\", \"allow\": [\"spki:sha256:AA\"]}"),
            "clients.allow[0]: expected sha256:",
        ),
        (
            with("\"clients\": {\"certificates\": \"required\", \"roots\": \"nothing\"}"),
            "clients.roots: no PEM certificate",
        ),
        (
            format!(
                "{{\"certificates\": [{{\"chain\": {chain}, \"key\": {}}}]}}",
                quote(&other.key)
            ),
            "certificates[0].key: does not match the first certificate",
        ),
        (
            format!("{{\"certificates\": [{{\"chain\": \"\", \"key\": {key}}}]}}"),
            "certificates[0].chain: no PEM certificate",
        ),
        (
            format!("{{\"certificates\": [{{\"chain\": {chain}, \"key\": \"\"}}]}}"),
            "certificates[0].key: no PEM private key",
        ),
        (
            format!("{{\"certificates\": [{{\"chain\": {chain}}}]}}"),
            "certificates[0].key: missing; a chain needs key, or host-key",
        ),
        (
            format!(
                "{{\"certificates\": [{{\"chain\": {chain}, \"key\": {key}, \"host-key\": \"web\"}}]}}"
            ),
            "certificates[0].host-key: expected one of key and host-key",
        ),
        (
            format!("{{\"certificates\": [{{\"chain\": {chain}, \"host-key\": \"\"}}]}}"),
            "certificates[0].host-key: expected the host's name",
        ),
        (
            format!("{{\"certificates\": [{{\"chain\": {chain}, \"host-key\": \"web\"}}]}}"),
            "certificates[0].host-key: the host does not support keys",
        ),
        (
            format!(
                "{{\"certificates\": [{{\"chain\": {chain}, \"key\": {key}, \"ocsp\": \"MAMKAQE=\"}}]}}"
            ),
            "certificates[0].ocsp: expected a successful OCSP response",
        ),
        (
            with(&format!(
                "\"clients\": {{\"certificates\": \"required\", \"roots\": {root}, \"crls\": {root}}}"
            )),
            "clients.crls: no PEM X509 CRL found",
        ),
        (
            with("\"clients\": {\"certificates\": \"none\", \"crls\": \"\"}"),
            "clients.certificates: expected \"optional\" or \"required\" beside",
        ),
        (
            with(&format!(
                "\"clients\": {{\"certificates\": \"required\", \"roots\": {root}, \"stale-crls\": \"x\"}}"
            )),
            "clients.stale-crls: unknown variant",
        ),
        (
            format!(
                "{{\"certificates\": [{{\"chain\": {chain}, \"key\": {key}, \"names\": [\"a b\"]}}]}}"
            ),
            "certificates[0].names[0]: expected a name",
        ),
        (
            "{\"server\": {\"remote\": \"example.com\"}}".to_owned(),
            "server.remote: expected a host and a port",
        ),
        (
            format!("{{\"server\": {{\"name\": \"a b\", \"roots\": {root}}}}}"),
            "server.name: expected a name",
        ),
        (
            format!("{{\"server\": {{\"pins\": [\"x\"], \"roots\": {root}}}}}"),
            "server.pins[0]: expected sha256:",
        ),
        (
            format!("{{\"server\": {{\"chain\": {chain}, \"roots\": {root}}}}}"),
            "server.key: missing",
        ),
        (
            format!("{{\"server\": {{\"key\": {key}, \"roots\": {root}}}}}"),
            "server.chain: missing",
        ),
    ] {
        let error = refused(&config);
        assert!(
            error.contains(expected),
            "expected {expected}, was told {error}"
        );
    }
}

#[test]
fn an_encrypted_key_is_recognised() {
    let pair = Authority::new().sign(&["example.com"], "example.com");
    let key = pair.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let error = refused(&format!("{}{key}", pair.chain));
    assert!(error.contains("the private key is encrypted"), "{error}");
}

#[test]
fn a_certificate_that_is_late_is_warned_of() {
    let authority = Authority::new();
    let pair = authority.sign_expired("example.com");
    let warnings = tls(&format!("{}{}", pair.chain, pair.key)).warnings();
    assert_eq!(
        warnings,
        ["certificates[0].chain: the certificate is not valid now"]
    );
}

#[test]
fn limits_are_seconds() {
    let limits = tls("{\"limits\": {\"handshake\": 3, \"idle\": 4, \"lifetime\": 5}}").limits();
    assert_eq!(limits.handshake.as_secs(), 3);
    assert_eq!(limits.idle.map(|idle| idle.as_secs()), Some(4));
    assert_eq!(limits.lifetime.map(|lifetime| lifetime.as_secs()), Some(5));
}
