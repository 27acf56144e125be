//! The check of clients by certificate, and the decoy for the others.

mod support;

use support::{Authority, End, Pair, Two, client, quote, remote, server};
use watm_stream::{Codec, StreamTransport};
use watm_tls::Tls;

struct World {
    authority: Authority,
    pair: Pair,
}

impl World {
    fn new() -> World {
        let authority = Authority::new();
        let pair = authority.sign(&["example.com"], "example.com");
        World { authority, pair }
    }

    /// A server that asks for certificates of its own root.
    fn server(&self, wanted: &str, allow: &str, more: &str) -> Tls {
        let roots = quote(&self.authority.pem());
        let clients = format!(
            "\"clients\": {{\"certificates\": \"{wanted}\", \"roots\": {roots}, \"allow\": [{allow}]}}{more}"
        );
        server(&self.pair, &clients)
    }

    fn client(&self, shown: Option<&Pair>) -> Tls {
        let shown = shown.map(|pair| {
            format!(
                "\"chain\": {}, \"key\": {}",
                quote(&pair.chain),
                quote(&pair.key)
            )
        });
        client(&self.authority, &shown.unwrap_or_default())
    }
}

#[test]
fn a_certificate_may_be_required() {
    let world = World::new();
    let alice = world.authority.sign(&["alice.example"], "alice");
    let server = world.server("required", "", "");
    let (_, told) = Two::failures(&world.client(None), &server, "example.com");
    assert_eq!(told, "no client certificate");
    let two = Two::met(&world.client(Some(&alice)), &server, "example.com");
    assert_eq!(two.server.info().peer.as_deref(), Some("alice"));
    let attribute = |name| two.server.attribute(name);
    assert_eq!(attribute("tls.client-cn").as_deref(), Some("alice"));
    assert_eq!(
        attribute("tls.client-san").as_deref(),
        Some("dns:alice.example")
    );
    assert_eq!(attribute("tls.verified").as_deref(), Some("yes"));
    assert!(attribute("tls.client-key").unwrap().starts_with("sha256:"));
    assert!(
        attribute("tls.client-certificate")
            .unwrap()
            .starts_with("3082")
    );
}

#[test]
fn a_certificate_may_be_left_out_where_it_is_optional() {
    let world = World::new();
    let server = world.server("optional", "", "");
    let two = Two::met(&world.client(None), &server, "example.com");
    assert_eq!(two.server.info().peer, None);
    let stranger = Authority::new().sign(&["alice.example"], "alice");
    let (_, told) = Two::failures(&world.client(Some(&stranger)), &server, "example.com");
    assert!(told.contains("root"), "{told}");
}

#[test]
fn an_expired_certificate_is_not_good() {
    let world = World::new();
    let late = world.authority.sign_expired("alice.example");
    let server = world.server("required", "", "");
    let (told, why) = Two::failures(&world.client(Some(&late)), &server, "example.com");
    assert!(why.contains("it has expired"), "{why}");
    assert!(told.contains("CertificateExpired"), "{told}");
}

#[test]
fn only_those_who_are_allowed_come_in() {
    let world = World::new();
    let alice = world.authority.sign(&["a.alice.example"], "alice");
    let robot = world.authority.sign_uri("spiffe://example/robot");
    for (allow, alice_may, robot_may) in [
        ("\"cn:alice\"", true, false),
        ("\"cn:al*\"", true, false),
        ("\"cn:bob\", \"dns:*.alice.example\"", true, false),
        ("\"dns:*.example\"", false, false),
        ("\"uri:spiffe://example/*\"", false, true),
        ("\"uri:spiffe://*\"", false, false),
    ] {
        let server = world.server("required", allow, "");
        for (shown, may) in [(&alice, alice_may), (&robot, robot_may)] {
            let (_, told) = Two::failures(&world.client(Some(shown)), &server, "example.com");
            assert_eq!(told.is_empty(), may, "{allow}: {told}");
            assert!(may || told.contains("not in the allow list"), "{told}");
        }
    }
}

#[test]
fn a_pinned_key_needs_no_root() {
    let world = World::new();
    let stranger = Authority::new().sign(&["alice.example"], "alice");
    let open = world.server("optional", "", ", \"decoy\": true");
    let two = Two::met(&world.client(Some(&stranger)), &open, "example.com");
    let pin = two.server.attribute("tls.client-key").unwrap();
    let pinned =
        format!("\"clients\": {{\"certificates\": \"required\", \"allow\": [\"spki:{pin}\"]}}");
    let pinned = server(&world.pair, &pinned);
    Two::met(&world.client(Some(&stranger)), &pinned, "example.com");
    let other = world.authority.sign(&["alice.example"], "alice");
    let (_, told) = Two::failures(&world.client(Some(&other)), &pinned, "example.com");
    assert!(told.contains("not in the allow list"), "{told}");
}

#[test]
fn whoever_resumes_a_session_is_judged_again() {
    let world = World::new();
    let alice = world.authority.sign(&["alice.example"], "alice");
    for version in ["1.2", "1.3"] {
        let more = format!(
            ", \"tickets\": {{\"secret\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"}}, \"versions\": [\"{version}\"]"
        );
        let client = world.client(Some(&alice));
        let before = world.server("required", "\"cn:alice\"", &more);
        Two::met(&client, &before, "example.com");
        let two = Two::met(&client, &before, "example.com");
        assert_eq!(two.server.attribute("tls.resumed").as_deref(), Some("yes"));
        assert_eq!(two.server.info().peer.as_deref(), Some("alice"));
        let after = world.server("required", "\"cn:bob\"", &more);
        let (_, told) = Two::failures(&client, &after, "example.com");
        assert!(told.contains("not in the allow list"), "{told}");
    }
}

#[test]
fn a_session_that_the_rules_do_not_allow_is_not_resumed() {
    let world = World::new();
    let alice = world.authority.sign(&["alice.example"], "alice");
    for version in ["1.2", "1.3"] {
        let versions = format!("\"versions\": [\"{version}\"]");
        let more = format!(", {versions}");
        let resumed = |client: &Tls, server: &Tls| {
            let two = Two::met(client, server, "example.com");
            two.server.attribute("tls.resumed").as_deref() == Some("yes")
        };
        let before = server(&world.pair, &versions);
        let client = world.client(Some(&alice));
        assert!(!resumed(&client, &before));
        assert!(resumed(&client, &before));
        for mut after in [
            world.server("required", "\"cn:alice\"", &more),
            world.server("required", "", &format!("{more}, \"decoy\": true")),
        ] {
            after.succeed(&before.snapshot());
            let two = Two::met(&client, &after, "example.com");
            assert_eq!(two.server.attribute("tls.resumed").as_deref(), Some("no"));
            assert_eq!(two.server.info().peer.as_deref(), Some("alice"));
            assert!(resumed(&client, &after));
            // The certificate presented then is no longer trusted.
            assert!(!resumed(&client, &before));
        }
        // A session without a certificate is resumed where that is allowed.
        let mut optional = world.server("optional", "", &more);
        optional.succeed(&before.snapshot());
        assert!(resumed(&client, &optional));
    }
}

#[test]
fn who_speaks_no_tls_is_for_the_decoy() {
    let world = World::new();
    let server = server(&world.pair, "\"decoy\": true");
    for piece in [1, 5, 100] {
        let mut end = End::new(server.accept(Some(remote())).unwrap());
        for bytes in b"GET / HTTP/1.1\r\n\r\n".chunks(piece) {
            end.hear(bytes);
        }
        assert!(end.codec.established());
        assert_eq!(end.heard.bytes(), b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(end.attribute("decoy").as_deref(), Some("not TLS"));
        assert!(end.said().is_empty());
        end.say(b"HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(end.said(), b"HTTP/1.1 200 OK\r\n\r\n");
        end.end();
        assert!(end.said().is_empty());
    }
}

#[test]
fn a_handshake_that_fails_at_once_is_for_the_decoy_with_every_byte() {
    let world = World::new();
    let server = server(&world.pair, "\"decoy\": true, \"versions\": [\"1.3\"]");
    let roots = quote(&world.authority.pem());
    let old = support::tls(&format!(
        "{{\"server\": {{\"roots\": {roots}}}, \"versions\": [\"1.2\"]}}"
    ));
    let hello = End::new(old.dial(support::to("example.com").as_ref()).unwrap()).said();
    for piece in [1, 7, hello.len()] {
        let mut end = End::new(server.accept(Some(remote())).unwrap());
        hello.chunks(piece).for_each(|bytes| end.hear(bytes));
        assert_eq!(end.heard.bytes(), hello);
        assert!(end.attribute("decoy").is_some());
        assert!(end.said().is_empty());
    }
}

#[test]
fn who_has_no_certificate_is_for_the_decoy_decrypted() {
    let world = World::new();
    let server = world.server("required", "", ", \"decoy\": true");
    let mut two = Two::met(&world.client(None), &server, "example.com");
    two.client.say(b"let me in");
    two.talk();
    assert_eq!(two.server.heard.bytes(), b"let me in");
    assert_eq!(
        two.server.attribute("decoy").as_deref(),
        Some("no client certificate")
    );
    assert_eq!(two.server.info().peer, None);
    let alice = world.authority.sign(&["alice.example"], "alice");
    let two = Two::met(&world.client(Some(&alice)), &server, "example.com");
    assert_eq!(two.server.attribute("decoy"), None);
}
