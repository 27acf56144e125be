//! The check of servers, and the errors when it fails.

mod support;

use support::{Authority, Two, client, quote, refused, server, tls, to};
use watm_core::ErrorCode;
use watm_stream::StreamTransport;

#[test]
fn the_check_that_failed_is_named() {
    let authority = Authority::new();
    let told = |pair: &_, name: &str| {
        let (told, _) = Two::failures(&client(&authority, ""), &server(pair, ""), name);
        told
    };
    let good = authority.sign(&["example.com"], "example.com");
    let other = told(&good, "example.org");
    assert!(
        other.contains("it is not for") && other.contains("example.com"),
        "{other}"
    );
    let nameless = told(&authority.sign(&[], "x"), "example.com");
    assert!(
        nameless.ends_with("it is not for example.com, and has no names"),
        "{nameless}"
    );
    let late = told(&authority.sign_expired("example.com"), "example.com");
    assert!(late.contains("it has expired"), "{late}");
    let stranger = told(&Authority::new().sign(&["example.com"], "x"), "example.com");
    assert!(
        stranger.contains("not signed by a trusted root"),
        "{stranger}"
    );
}

#[test]
fn a_pin_is_for_a_key() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let wrong = format!("\"pins\": [\"sha256:{}=\"]", "A".repeat(43));
    let (told, _) = Two::failures(
        &client(&authority, &wrong),
        &server(&pair, ""),
        "example.com",
    );
    let key = told
        .split("the key ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let key = key.unwrap_or_else(|| panic!("{told}"));
    let right = format!("\"pins\": [{}]", quote(key));
    Two::met(
        &client(&authority, &right),
        &server(&pair, ""),
        "example.com",
    );
    // Without a root, the key is enough, under any name.
    let alone = tls(&format!("{{\"server\": {{{right}}}}}"));
    Two::met(&alone, &server(&pair, ""), "example.org");
}

#[test]
fn the_name_that_is_asked_for_and_that_which_is_checked_may_differ() {
    let authority = Authority::new();
    let pair = authority.sign(&["real.example"], "real.example");
    let masked = client(
        &authority,
        "\"name\": \"front.example\", \"verify\": \"real.example\"",
    );
    let two = Two::met(&masked, &server(&pair, ""), "127.0.0.1");
    assert_eq!(
        two.server.attribute("sni").as_deref(),
        Some("front.example")
    );
}

#[test]
fn a_session_is_resumed() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let (client, server) = (client(&authority, ""), server(&pair, ""));
    Two::met(&client, &server, "example.com");
    Two::met(&client, &server, "example.com");
    let counters = client.counters();
    assert!(counters.contains(&("tls.resumed", 1)), "{counters:?}");
}

#[test]
fn without_anything_to_judge_by_nothing_is_dialled() {
    let said = |result: Result<_, ErrorCode>| match result {
        Ok(_) => panic!("it dials"),
        Err(error) => error.to_string(),
    };
    let nothing = tls("");
    assert!(said(nothing.dial(to("example.com").as_ref())).starts_with("server.roots: missing"));
    let error = refused("{\"server\": {\"remote\": \"example.com:443\"}}");
    assert!(error.starts_with("server.roots: missing"), "{error}");
    let nameless = client(&Authority::new(), "");
    assert!(said(nameless.dial(None)).starts_with("server.name: missing"));
}

#[test]
fn pem_alone_is_enough() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = tls(&format!("{}{}", pair.key, pair.chain));
    let client = tls(&authority.pem());
    Two::met(&client, &server, "example.com");
}

#[test]
fn both_ends_exchange_keys_by_ml_kem_too() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let group = |versions: &str| {
        let (client, server) = (client(&authority, ""), server(&pair, versions));
        let two = Two::met(&client, &server, "example.com");
        two.server.attribute("tls.group")
    };
    assert_eq!(group("").as_deref(), Some("X25519MLKEM768"));
    // The group is not for TLS 1.2.
    let old = group("\"versions\": [\"1.2\"]");
    assert_eq!(old.as_deref(), Some("X25519"));
}
