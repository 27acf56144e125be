//! Both ends: handshakes, data, and the end of connections.

mod support;

use support::{Authority, End, Two, client, quote, remote, server, tls};
use watm_stream::{Buffer, Codec, StreamTransport};

#[test]
fn each_version_carries_both_directions() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    for (version, name) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        let server = server(&pair, &format!("\"versions\": [\"{version}\"]"));
        let mut two = Two::met(&client(&authority, ""), &server, "example.com");
        let data: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        two.client.say(&data);
        two.server.say(&data);
        two.talk();
        assert_eq!(two.server.heard.bytes(), data);
        assert_eq!(two.client.heard.bytes(), data);
        assert_eq!(two.server.attribute("tls.version").as_deref(), Some(name));
        assert_eq!(two.server.attribute("sni").as_deref(), Some("example.com"));
        assert_eq!(two.server.attribute("tls.resumed").as_deref(), Some("no"));
    }
}

#[test]
fn chacha_comes_first_whatever_the_client_prefers() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let roots = quote(&authority.pem());
    for (version, expected) in [
        ("1.2", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        ("1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    ] {
        let client = tls(&format!(
            "{{\"server\": {{\"roots\": {roots}}}, \"versions\": [\"{version}\"], \"ciphers\": [
                \"TLS_AES_256_GCM_SHA384\", \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\",
                \"TLS_CHACHA20_POLY1305_SHA256\", \"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\"]}}"
        ));
        let two = Two::met(&client, &server(&pair, ""), "example.com");
        assert_eq!(
            two.server.attribute("tls.cipher").as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn keys_of_each_kind_serve() {
    let authority = Authority::new();
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ] {
        let pair = authority.sign_with(&["example.com"], "example.com", algorithm);
        Two::met(&client(&authority, ""), &server(&pair, ""), "example.com");
    }
}

#[test]
fn a_byte_at_a_time_is_as_good_as_all_at_once() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    for version in ["1.2", "1.3"] {
        let server = server(&pair, &format!("\"versions\": [\"{version}\"]"));
        let mut two = Two::new(&client(&authority, ""), &server, "example.com");
        two.piece = 1;
        two.talk();
        two.client.say(&[7; 40_000]);
        two.client.end();
        two.server.say(&[8; 40_000]);
        two.talk();
        assert_eq!((&two.client.failure, &two.server.failure), (&None, &None));
        assert_eq!(two.server.heard.bytes(), [7; 40_000]);
        assert_eq!(two.client.heard.bytes(), [8; 40_000]);
        assert!(two.server.codec.has_ended_inward());
    }
}

#[test]
fn an_end_is_of_one_direction() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let mut two = Two::met(&client(&authority, ""), &server(&pair, ""), "example.com");
    two.client.say(b"the last words");
    two.client.end();
    two.talk();
    assert!(two.server.codec.has_ended_inward());
    assert_eq!(two.server.heard.bytes(), b"the last words");
    two.server.say(b"and the answer");
    two.server.end();
    two.talk();
    assert_eq!(two.client.heard.bytes(), b"and the answer");
    assert!(two.client.codec.has_ended_inward());
}

#[test]
fn what_ends_without_saying_so_is_cut_short() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let mut two = Two::met(&client(&authority, ""), &server(&pair, ""), "example.com");
    two.client.say(b"half of");
    two.talk();
    for end in [&mut two.server, &mut two.client] {
        let cut = end
            .codec
            .end_inward(&Buffer::default(), &mut Buffer::default());
        let said = cut.unwrap_err().to_string();
        assert!(said.contains("close_notify"), "{said}");
    }
}

#[test]
fn a_session_is_resumed_by_whoever_has_the_secret() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let secret = "\"tickets\": {\"secret\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"}";
    for version in ["1.2", "1.3"] {
        let versions = format!("\"versions\": [\"{version}\"]");
        let (one, two) = (
            server(&pair, &format!("{secret}, {versions}")),
            server(&pair, &format!("{secret}, {versions}")),
        );
        let other = server(&pair, &versions);
        let client = client(&authority, "");
        let resumed = |server| {
            let two = Two::met(&client, server, "example.com");
            two.server.attribute("tls.resumed").unwrap()
        };
        assert_eq!(resumed(&one), "no");
        assert_eq!(resumed(&two), "yes");
        assert_eq!(resumed(&other), "no");
    }
}

#[test]
fn the_next_generation_resumes_too_and_so_does_another_configuration() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let mut first = server(&pair, "");
    let client = client(&authority, "");
    let resumed = |server: &_| {
        let two = Two::met(&client, server, "example.com");
        two.server.attribute("tls.resumed").unwrap()
    };
    assert_eq!(resumed(&first), "no");
    let mut second = server(&pair, "");
    second.succeed(&first.snapshot());
    assert_eq!(resumed(&second), "yes");
    let config = format!("{{\"certificates\": [{}]}}", pair.json());
    first.reconfigure(config.as_bytes()).unwrap();
    assert_eq!(resumed(&first), "yes");
    // Unknown snapshots are ignored.
    for other in [&b""[..], b"watm-tls\x02", b"watm-tls\x01short"] {
        second.succeed(other);
    }
    assert_eq!(resumed(&second), "yes");
}

#[test]
fn without_tickets_nothing_is_resumed() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, "\"tickets\": false");
    let client = client(&authority, "");
    for _ in 0..2 {
        let two = Two::met(&client, &server, "example.com");
        assert_eq!(two.server.attribute("tls.resumed").as_deref(), Some("no"));
    }
}

#[test]
fn a_name_has_its_certificate() {
    let authority = Authority::new();
    let pairs: Vec<_> = [&["one.example"][..], &["*.two.example"], &["a.two.example"]]
        .iter()
        .map(|names| authority.sign(names, names[0]).json())
        .collect();
    let config = |more: &str| {
        tls(&format!(
            "{{\"certificates\": [{}]{more}}}",
            pairs.join(", ")
        ))
    };
    let server = config("");
    // A client checks the name, so that it accepts only the right one.
    for name in [
        "one.example",
        "ONE.example",
        "a.two.example",
        "b.two.example",
    ] {
        Two::met(&client(&authority, ""), &server, name);
    }
    for name in ["two.example", "a.b.two.example", "three.example"] {
        let (told, _) = Two::failures(&client(&authority, ""), &server, name);
        assert!(told.contains("it is not for"), "{told}");
    }
    let strict = config(", \"no-match\": \"abort\"");
    let (told, _) = Two::failures(&client(&authority, ""), &strict, "three.example");
    assert!(told.contains("the peer sent the alert"), "{told}");
}

#[test]
fn a_protocol_is_agreed_on() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, "\"alpn\": [\"h2\", \"http/1.1\"]");
    let offer = |more: &str| client(&authority, more);
    let two = Two::met(
        &offer("\"alpn\": [\"http/1.1\", \"h2\"]"),
        &server,
        "example.com",
    );
    assert_eq!(two.server.attribute("alpn").as_deref(), Some("h2"));
    let two = Two::met(&offer(""), &server, "example.com");
    assert_eq!(two.server.attribute("alpn"), None);
    let (_, told) = Two::failures(&offer("\"alpn\": [\"imap\"]"), &server, "example.com");
    assert!(told.contains("alpn"), "{told}");
}

#[test]
fn another_certificate_leaves_connections_alone() {
    let authority = Authority::new();
    let (old, new) = (
        authority.sign(&["old.example"], "old"),
        authority.sign(&["new.example"], "new"),
    );
    let mut server = server(&old, "");
    let mut two = Two::met(&client(&authority, ""), &server, "old.example");
    let config = format!("{{\"certificates\": [{}]}}", new.json());
    server.reconfigure(config.as_bytes()).unwrap();
    Two::met(&client(&authority, ""), &server, "new.example");
    let broken = config.replace("BEGIN CERTIFICATE", "BEGIN NONSENSE");
    assert!(server.reconfigure(broken.as_bytes()).is_err());
    Two::met(&client(&authority, ""), &server, "new.example");
    two.client.say(b"still here");
    two.talk();
    assert_eq!(two.server.heard.bytes(), b"still here");
}

#[test]
fn garbage_is_refused_with_an_alert() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, "");
    let mut end = End::new(server.accept(Some(remote())).unwrap());
    end.hear(b"GET / HTTP/1.1\r\n\r\n");
    assert!(end.failure.is_some());
    // A fatal alert.
    assert_eq!(end.said()[..1], [0x15]);
}

#[test]
fn each_changed_bit_of_a_record_is_noticed() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let (server, client) = (server(&pair, ""), client(&authority, ""));
    let length = {
        let mut two = Two::met(&client, &server, "example.com");
        two.client.say(b"secret");
        two.client.said().len()
    };
    // The bytes before are a type, a version without meaning, and the length.
    for at in 5..length {
        let mut two = Two::met(&client, &server, "example.com");
        two.client.say(b"secret");
        let mut record = two.client.said();
        record[at] ^= 1;
        two.server.hear(&record);
        assert!(two.server.failure.is_some(), "byte {at}");
        assert!(two.server.heard.is_empty());
    }
}
