//! A registry that behaves well or badly. The tests with a real one are in tests/update.

use watm_seal::Digest;
use watm_update::{Credentials, NetworkOptions, Outcome, Source, publish};

use crate::server::*;
use crate::support::*;

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const LAYER: &str = "application/wasm";

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Digest::of(bytes))
}

fn descriptor(media_type: &str, digest: &str, size: usize) -> String {
    format!(r#"{{"mediaType": "{media_type}", "digest": "{digest}", "size": {size}}}"#)
}

/// Returns a manifest with a configuration of this kind, and these layers.
fn manifest_of(config: &str, layers: &[String]) -> Vec<u8> {
    let config = descriptor(config, &digest(b"{}"), 2);
    let layers = layers.join(", ");
    format!(
        r#"{{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {config}, "layers": [{layers}]}}"#
    )
    .into_bytes()
}

fn manifest_for(module: &[u8]) -> Vec<u8> {
    manifest_of(CONFIG, &[descriptor(LAYER, &digest(module), module.len())])
}

/// Answers as a registry with one module, under every tag.
fn registry(request: &Request, module: &[u8]) -> Answer {
    let manifest = manifest_for(module);
    match request.path.strip_prefix("/v2/team/wireguard/") {
        Some(path) if path.starts_with("manifests/") => {
            let tag = format!("\"{}\"", digest(&manifest));
            serve(request, &tag, &manifest)
        }
        Some(path) if path == format!("blobs/{}", digest(module)) => {
            serve(request, "\"b\"", module)
        }
        _ => answer(404, &[], b"{}"),
    }
}

fn reference(server: &Server) -> String {
    format!("oci://{}/team/wireguard:stable", server.address)
}

/// Checks that a manifest is refused.
async fn refuses(expected: &str, manifest: Vec<u8>) {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(
        move |_, request| match request.path.contains("/manifests/") {
            true => answer(200, &[], &manifest),
            false => answer(200, &[], &sealed("1.6")),
        },
    )
    .await;
    let report = host.update(&reference(&server)).await;
    assert_eq!(code(&report), expected, "{:?}", report.outcome);
    assert!(host.holds(&sealed("1.5")));
    assert_eq!(host.left(), [""; 0]);
}

#[tokio::test]
async fn a_module_is_taken_by_its_tag_and_only_if_it_is_new() {
    let host = Host::empty();
    let server = Server::new(|number, request| match number {
        0..3 => registry(request, &sealed("1.5")),
        _ => registry(request, &sealed("1.6")),
    })
    .await;
    assert_eq!(code(&host.update(&reference(&server)).await), "updated");
    assert_eq!(code(&host.update(&reference(&server)).await), "unchanged");
    assert_eq!(
        server.seen().len(),
        3,
        "a manifest, its layer, and a manifest"
    );
    assert_eq!(code(&host.update(&reference(&server)).await), "updated");
    assert!(host.holds(&sealed("1.6")));
}

#[tokio::test]
async fn a_registry_without_conditional_requests_sends_the_manifest_only() {
    let host = Host::empty();
    let server = Server::new(|_, request| {
        let mut request = request.clone();
        request.headers.remove("if-none-match");
        registry(&request, &sealed("1.5"))
    })
    .await;
    assert_eq!(code(&host.update(&reference(&server)).await), "updated");
    assert_eq!(code(&host.update(&reference(&server)).await), "unchanged");
    let blobs = server
        .seen()
        .into_iter()
        .filter(|it| it.path.contains("/blobs/"));
    assert_eq!(blobs.count(), 1);
}

#[tokio::test]
async fn a_digest_pins_what_comes() {
    let module = sealed("1.5");
    let pinned = digest(&manifest_for(&module));
    let server = Server::new(|number, request| match number {
        0..2 => registry(request, &sealed("1.5")),
        _ => registry(request, &sealed("1.6")),
    })
    .await;
    let source = format!("oci://{}/team/wireguard@{pinned}", server.address);
    assert_eq!(code(&Host::empty().update(&source).await), "updated");
    assert_eq!(
        server.seen()[0].path,
        format!("/v2/team/wireguard/manifests/{pinned}")
    );
    assert_eq!(code(&Host::empty().update(&source).await), "wrong-digest");
}

#[tokio::test]
async fn a_layer_that_breaks_off_goes_on() {
    let host = Host::empty();
    let server = Server::new(|number, request| {
        let whole = registry(request, &sealed("1.5"));
        if number == 1 {
            cut(whole, 40_000)
        } else {
            whole
        }
    })
    .await;
    assert_eq!(code(&host.update(&reference(&server)).await), "updated");
    let seen = server.seen();
    assert_eq!(seen[2].range(), Some(40_000));
    assert_eq!(
        seen[2].header("if-range"),
        None,
        "its digest says what it is"
    );
}

#[tokio::test]
async fn a_layer_that_is_not_what_its_digest_says() {
    let new = sealed("1.6");
    let size = new.len();
    refuses(
        "wrong-digest",
        manifest_of(CONFIG, &[descriptor(LAYER, &digest(b"other"), size)]),
    )
    .await;
    // More than the manifest says, and more than the limit.
    refuses(
        "too-large",
        manifest_of(CONFIG, &[descriptor(LAYER, &digest(&new), 100)]),
    )
    .await;
    refuses(
        "too-large",
        manifest_of(CONFIG, &[descriptor(LAYER, &digest(&new), 1 << 40)]),
    )
    .await;
}

#[tokio::test]
async fn an_artifact_that_is_no_module() {
    let new = sealed("1.6");
    let layer = |media_type: &str| descriptor(media_type, &digest(&new), new.len());
    let image = "application/vnd.oci.image.config.v1+json";
    refuses("artifact", manifest_of(image, &[layer(LAYER)])).await;
    let tar = "application/vnd.oci.image.layer.v1.tar";
    refuses("artifact", manifest_of(CONFIG, &[layer(tar)])).await;
    refuses("artifact", manifest_of(CONFIG, &[])).await;
    refuses(
        "artifact",
        manifest_of(CONFIG, &[layer(LAYER), layer(LAYER)]),
    )
    .await;
    for wrong in ["md5:00", "sha256:../../../other", "sha512:00", ""] {
        let layer = descriptor(LAYER, wrong, new.len());
        refuses("artifact", manifest_of(CONFIG, &[layer])).await;
    }
    refuses("artifact", b"<html>".to_vec()).await;
    refuses("artifact", b"{}".to_vec()).await;
    let index = br#"{"schemaVersion": 2, "manifests": []}"#;
    refuses("artifact", index.to_vec()).await;
    refuses("too-large", vec![b' '; 300 << 10]).await;
}

#[tokio::test]
async fn an_endless_manifest() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, _| vec![head(200, &[]), Step::Endless(b"[".repeat(1000))]).await;
    assert_eq!(code(&host.update(&reference(&server)).await), "too-large");
    assert!(host.holds(&sealed("1.5")));
}

#[tokio::test]
async fn registries_are_reached_by_tls_unless_asked_otherwise() {
    let host = Host::empty();
    let server = Server::new(|_, request| registry(request, &sealed("1.5"))).await;
    let network = NetworkOptions {
        plain_http: false,
        ..impatient()
    };
    let mut updater = host.updater(&reference(&server)).network(network);
    // The client makes no request from such a reference.
    let report = updater.check().await;
    assert!(matches!(report.outcome, Outcome::Refused { .. }));
    assert_eq!(server.seen().len(), 0);
    assert_eq!(host.in_place(), None);
}

/// Updates with these credentials, from a registry that sends `challenge`, with `token` as its
/// service.
async fn asked(
    credentials: Option<&str>,
    challenge: &'static str,
    token: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    accepts: &'static str,
) -> (String, Vec<Request>) {
    let service = Server::new(move |_, request| token(request)).await;
    let challenge = challenge.replace("SERVICE", &service.url());
    let server = Server::new(move |_, request| match request.header("authorization") {
        Some(found) if found == accepts => registry(request, &sealed("1.5")),
        _ => answer(401, &[("WWW-Authenticate", &challenge)], b"{}"),
    })
    .await;
    let network = NetworkOptions {
        credentials: credentials.map(|text| Credentials::parse(text).expect("good")),
        ..impatient()
    };
    let mut updater = Host::empty().updater(&reference(&server)).network(network);
    let report = updater.check().await;
    (code(&report).to_owned(), service.seen())
}

#[tokio::test]
async fn who_asks_is_said_to_those_who_want_to_know() {
    const BEARER: &str = r#"Bearer realm="SERVICE",service="the, \"registry\"",scope="x""#;
    let none = |_: &Request| answer(500, &[], b"");
    let token = |_: &Request| answer(200, &[], br#"{"token": "abc"}"#);
    let access = |_: &Request| answer(200, &[], br#"{"access_token": "abc", "expires_in": 60}"#);

    let (code, _) = asked(
        Some("me:secret"),
        "Basic realm=x",
        none,
        "Basic bWU6c2VjcmV0",
    )
    .await;
    assert_eq!(code, "updated");
    let (code, _) = asked(None, "Basic realm=x", none, "Basic bWU6c2VjcmV0").await;
    assert_eq!(code, "unauthorized");
    let (code, _) = asked(
        Some("me:wrong"),
        "Basic realm=x",
        none,
        "Basic bWU6c2VjcmV0",
    )
    .await;
    assert_eq!(code, "unauthorized");

    let (code, seen) = asked(None, BEARER, token, "Bearer abc").await;
    assert_eq!(code, "updated");
    let scope = "/module.wasm?scope=repository%3Ateam%2Fwireguard%3Apull";
    assert_eq!(
        seen[0].path,
        format!("{scope}&service=the%2C+%22registry%22")
    );
    assert_eq!(seen[0].header("authorization"), None);
    let (code, seen) = asked(Some("me:secret"), BEARER, access, "Bearer abc").await;
    assert_eq!(code, "updated");
    assert_eq!(seen[0].header("authorization"), Some("Basic bWU6c2VjcmV0"));
    let (code, seen) = asked(Some("Bearer abc"), BEARER, none, "Bearer abc").await;
    assert_eq!((code.as_str(), seen.len()), ("updated", 0));

    let (code, _) = asked(None, BEARER, token, "Bearer other").await;
    assert_eq!(code, "unauthorized");
    let (code, _) = asked(None, BEARER, none, "Bearer abc").await;
    assert_eq!(code, "status");
    let endless = |_: &Request| vec![head(200, &[]), Step::Endless(vec![b' '; 1000])];
    let (code, _) = asked(None, BEARER, endless, "Bearer abc").await;
    assert_eq!(code, "too-large");
    for wrong in [
        "Negotiate",
        "",
        "Bearer",
        "Bearer realm=\"file:///etc/passwd\"",
        "=,=\"",
    ] {
        let (code, _) = asked(Some("me:secret"), wrong, none, "Bearer abc").await;
        assert_eq!(code, "unauthorized", "{wrong}");
    }
}

/// Starts a registry with this token service.
async fn naming(realm: String) -> Server {
    let challenge = format!(r#"Bearer realm="{realm}",service="x""#);
    Server::new(move |_, request| match request.header("authorization") {
        Some("Bearer abc") => registry(request, &sealed("1.5")),
        _ => answer(401, &[("WWW-Authenticate", &challenge)], b"{}"),
    })
    .await
}

/// Starts a token service at another host than the registry's, by name.
async fn elsewhere() -> (Server, String) {
    let service = Server::new(|_, _| answer(200, &[], br#"{"token": "abc"}"#)).await;
    let realm = service.url().replace("127.0.0.1", "localhost");
    (service, realm)
}

fn with_password(hosts: &[&str]) -> NetworkOptions {
    NetworkOptions {
        credentials: Credentials::parse("me:secret"),
        credential_hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..impatient()
    }
}

#[tokio::test]
async fn a_password_goes_to_the_registry_and_to_hosts_that_are_named() {
    let (service, realm) = elsewhere().await;
    let server = naming(realm).await;
    let mut updater = Host::empty().updater(&reference(&server));
    updater = updater.network(with_password(&["example.com"]));
    let Outcome::Refused { code: why, reason } = updater.check().await.outcome else {
        panic!("it went there");
    };
    assert_eq!(why, "unauthorized");
    assert!(
        reason.contains("token service at localhost, which is not sent"),
        "{reason}"
    );
    assert!(service.seen().is_empty());

    let mut updater = Host::empty().updater(&reference(&server));
    updater = updater.network(with_password(&["LocalHost"]));
    assert_eq!(code(&updater.check().await), "updated");
    assert_eq!(
        service.seen()[0].header("authorization"),
        Some("Basic bWU6c2VjcmV0")
    );
    // A client without a password has nothing to lose.
    let mut updater = Host::empty().updater(&reference(&server));
    assert_eq!(code(&updater.check().await), "updated");
    assert_eq!(service.seen()[1].header("authorization"), None);
}

#[tokio::test]
async fn a_server_to_which_the_registry_redirects_gets_nothing() {
    let other =
        Server::new(|_, _| answer(401, &[("WWW-Authenticate", "Basic realm=x")], b"{}")).await;
    let to = other.url();
    let server = Server::new(move |_, _| answer(307, &[("Location", &to)], b"")).await;
    let mut updater = Host::empty().updater(&reference(&server));
    updater = updater.network(with_password(&[]));
    let Outcome::Refused { code: why, reason } = updater.check().await.outcome else {
        panic!("there is no module");
    };
    assert_eq!(why, "unauthorized");
    assert!(reason.contains("only the registry itself may"), "{reason}");
    let all = [server.seen(), other.seen()].concat();
    assert!(
        all.iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[tokio::test]
async fn who_publishes_gives_no_password_to_another_host_either() {
    let (service, realm) = elsewhere().await;
    let server = naming(realm).await;
    let to = Source::parse(&reference(&server)).expect("a registry");
    let error = publish(&sealed("1.5"), &to, &with_password(&[])).await;
    let reason = error.expect_err("refused").to_string();
    assert!(
        reason.contains("token service at localhost, which is not sent"),
        "{reason}"
    );
    assert!(service.seen().is_empty());
    // The service is asked once, and the rest is between the registry and the token.
    let named = publish(&sealed("1.5"), &to, &with_password(&["localhost"])).await;
    assert!(named.is_err(), "the registry takes no uploads");
    assert_eq!(service.seen().len(), 1);
    assert!(service.seen()[0].path.contains("pull%2Cpush"));
}

/// Starts a registry that takes uploads to a place, from whoever has the password.
async fn taking(place: String) -> Server {
    Server::new(move |_, request| {
        let known = request.header("authorization") == Some("Basic bWU6c2VjcmV0");
        match request.path.as_str() {
            _ if !known => answer(401, &[("WWW-Authenticate", "Basic realm=\"x\"")], b""),
            "/v2/team/wireguard/blobs/uploads/" if place.is_empty() => answer(202, &[], b""),
            "/v2/team/wireguard/blobs/uploads/" => answer(202, &[("Location", &place)], b""),
            _ => answer(201, &[], b""),
        }
    })
    .await
}

/// Publishes a module to a registry with a password.
async fn published_to(server: &Server) -> Result<String, String> {
    let to = Source::parse(&reference(server)).expect("a registry");
    let published = publish(&sealed("1.5"), &to, &with_password(&[])).await;
    published.map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_upload_goes_where_the_registry_names_a_place() {
    let server = taking("/store/7?state=x".to_owned()).await;
    let found = published_to(&server).await.expect("taken");
    assert!(found.starts_with("sha256:"), "{found}");
    let paths: Vec<String> = server.seen().into_iter().map(|it| it.path).collect();
    let digest = digest(&sealed("1.5")).replace(':', "%3A");
    assert_eq!(paths[2], format!("/store/7?state=x&digest={digest}"));
    assert_eq!(paths[5], "/v2/team/wireguard/manifests/stable");
    assert_eq!(paths.len(), 6, "{paths:?}");
}

#[tokio::test]
async fn a_place_at_another_host_gets_no_password() {
    let (store, place) = elsewhere().await;
    let server = taking(place).await;
    let reason = published_to(&server).await.expect_err("status 200");
    assert!(reason.contains("status 200"), "{reason}");
    assert_eq!(store.seen().len(), 1);
    assert_eq!(store.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn an_upload_needs_a_place() {
    for place in ["", "ftp://example.com/", "http://["] {
        let server = taking(place.to_owned()).await;
        let reason = published_to(&server).await.expect_err("nowhere to go");
        assert!(reason.contains("place for an upload"), "{reason}");
    }
}
