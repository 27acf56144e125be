//! The notation of sources, and updates from good ones.

use watm_seal::{Announcement, DAY, Manifest, Note};
use watm_update::{Outcome, Source};

use crate::server::*;
use crate::support::*;

#[test]
fn sources_are_told_apart() {
    for (text, shown) in [
        ("modules/a.wasm", "modules/a.wasm"),
        ("file:modules/a.wasm", "modules/a.wasm"),
        ("file:///srv/a%20b.wasm", "/srv/a b.wasm"),
        ("https://example.com/a.wasm", "https://example.com/a.wasm"),
        (
            "https://me:secret@example.com/a",
            "https://me:%E2%80%A6@example.com/a",
        ),
        (
            "oci://r.example.com/team/a",
            "oci://r.example.com/team/a:latest",
        ),
        (
            "oci://localhost:5000/a:stable",
            "oci://localhost:5000/a:stable",
        ),
    ] {
        let source = Source::parse(text).expect(text);
        assert_eq!(source.to_string(), shown);
        let is_path = !text.contains("://") || text.starts_with("file:");
        assert_eq!(source.is_local(), is_path, "{text}");
    }
    let digest = format!("oci://r.example.com/a@sha256:{}", "a".repeat(64));
    assert_eq!(Source::parse(&digest).expect("good").to_string(), digest);
    for (text, why) in [
        ("", "empty"),
        ("ftp://example.com/a", "unknown scheme"),
        ("https://", "host"),
        ("https://me:secret@:99999/", "source \"http\""),
        ("oci://a", "REGISTRY"),
        ("oci://team/a", "REGISTRY"),
        ("oci://r.example.com/A:b", "not a repository"),
        ("oci://r.example.com/a@sha256:12", "unsupported digest"),
    ] {
        let error = Source::parse(text).expect_err(text).to_string();
        assert!(
            error.to_lowercase().contains(&why.to_lowercase()),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_server_is_asked_for_what_is_new_only() {
    let host = Host::empty();
    let server = Server::new(|number, request| match number {
        0..3 => serve(request, "\"one\"", &sealed("1.5")),
        _ => serve(request, "\"two\"", &sealed("1.6")),
    })
    .await;
    let report = host.update(&server.url()).await;
    let Outcome::Updated { module, previous } = &report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert_eq!(
        module.as_ref().expect("sealed").manifest.release,
        release("1.5")
    );
    assert_eq!(*previous, None);
    assert_eq!(code(&host.update(&server.url()).await), "unchanged");
    let seen = server.seen();
    assert_eq!(seen[1].header("if-none-match"), Some("\"one\""));
    // If it is gone or changed, it is fetched again.
    std::fs::remove_file(host.place().path()).expect("removed");
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(server.seen()[2].header("if-none-match"), None);
    // A new release arrives.
    let report = host.update(&server.url()).await;
    let Outcome::Updated { previous, .. } = report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert_eq!(previous, Some(release("1.5")));
    assert!(host.holds(&sealed("1.6")));
}

#[tokio::test]
async fn a_date_does_where_there_is_no_tag() {
    const DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";
    const LATER: &str = "Sat, 21 Nov 2026 10:00:01 GMT";
    let host = Host::empty();
    let server =
        Server::new(
            |_, request| match request.header("if-modified-since") == Some(DATE) {
                true => answer(304, &[], b""),
                false => {
                    let headers = [("Last-Modified", DATE), ("Date", LATER)];
                    answer(200, &headers, &sealed("1.5"))
                }
            },
        )
        .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(code(&host.update(&server.url()).await), "unchanged");
    assert_eq!(server.seen()[1].header("if-modified-since"), Some(DATE));
    // A file made in the second in which it was sent may have changed in it, too.
    let host = Host::empty();
    let server = Server::new(|number, _| {
        let headers = [("Last-Modified", DATE), ("Date", DATE)];
        answer(200, &headers, &sealed(["1.5", "1.6"][number]))
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(server.seen()[1].header("if-modified-since"), None);
}

#[tokio::test]
async fn what_is_in_place_is_judged_again_when_nothing_is_new() {
    // The module in place may have expired; here a newer root in the state revokes its signer.
    let host = Host::empty();
    let server = Server::new(|_, request| serve(request, "\"one\"", &sealed("1.5"))).await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    let mut next = record();
    next.version = 2;
    next.first = Some(root().id());
    next.delegations[1].keys = [key(12).public()].into();
    next.revoked = [key(11).public()].into();
    let newer = root().follow(&[signed(next)]).expect("follows");
    host.state()
        .update(|state| state.adopt(&newer))
        .expect("written");
    assert_eq!(code(&host.update(&server.url()).await), "revoked");
    assert!(host.holds(&sealed("1.5")));
}

#[tokio::test]
async fn a_module_brings_a_newer_root() {
    let host = Host::with(&sealed("1.5"));
    let mut next = record();
    next.version = 2;
    next.first = Some(root().id());
    next.delegations[1].keys = [key(12).public()].into();
    next.revoked = [key(11).public()].into();
    let file = watm_seal::seal(&body(10), manifest("1.6"), &[signed(next)], &[key(12)]);
    let file = file.expect("sealed");
    let server = Server::new(move |_, request| match request.path.as_str() {
        "/old" => serve(request, "\"1\"", &sealed("1.7")),
        _ => serve(request, "\"2\"", &file),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    let state = host.state().load().expect("read");
    assert_eq!(state.root().expect("adopted").record().version, 2);
    // The stolen key is useless from here on.
    let old = format!("http://{}/old", server.address);
    assert_eq!(code(&host.update(&old).await), "revoked");
}

#[tokio::test]
async fn redirections_are_followed() {
    let host = Host::empty();
    let server = Server::new(|number, request| match number {
        0..5 => answer(307, &[("Location", "elsewhere.wasm")], b""),
        _ => serve(request, "\"1\"", &sealed("1.5")),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(server.seen()[5].path, "/elsewhere.wasm");
}

#[tokio::test]
async fn credentials_go_to_the_server_and_not_to_others() {
    let other = Server::new(|_, request| serve(request, "\"1\"", &sealed("1.5"))).await;
    let elsewhere = other.url();
    let server = Server::new(move |_, _| answer(302, &[("Location", &elsewhere)], b"")).await;
    let host = Host::empty();
    let network = watm_update::NetworkOptions {
        credentials: watm_update::Credentials::parse("me:secret\n"),
        ..impatient()
    };
    assert!(!format!("{network:?}").contains("secret"));
    let mut updater = host.updater(&server.url()).network(network.clone());
    assert_eq!(code(&updater.check().await), "updated");
    assert_eq!(
        server.seen()[0].header("authorization"),
        Some("Basic bWU6c2VjcmV0")
    );
    assert_eq!(other.seen()[0].header("authorization"), None);
    // The same over plain HTTP, unless that was requested.
    let network = watm_update::NetworkOptions {
        plain_http: false,
        ..network
    };
    host.updater(&server.url()).network(network).check().await;
    assert_eq!(server.seen()[1].header("authorization"), None);
}

#[tokio::test]
async fn what_will_expire_is_said_before() {
    let soon = Manifest {
        expires: now() + 3 * DAY,
        ..manifest("1.5")
    };
    let file = sealed_of(soon, &body(10));
    let host = Host::empty();
    let server = Server::new(move |_, request| serve(request, "\"1\"", &file)).await;
    for expected in ["updated", "unchanged"] {
        let report = host.update(&server.url()).await;
        assert_eq!(code(&report), expected);
        let codes: Vec<_> = report.warnings.iter().map(|it| it.code).collect();
        assert_eq!(codes, ["expires-soon"]);
    }
}

#[tokio::test]
async fn a_note_tells_of_updates_that_are_kept_back() {
    let note = Note::new(Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release("1.7"),
        time: now(),
    });
    let note = note.sign(&key(31)).expect("room").to_file();
    let forged = Note::from_file(&note)
        .expect("whole")
        .announcement()
        .clone();
    let forged = Note::new(forged).sign(&key(32)).expect("room").to_file();
    let server = Server::new(move |_, request| match request.path.as_str() {
        "/note" => answer(200, &[], &note),
        "/forged" => answer(200, &[], &forged),
        "/endless" => vec![head(200, &[]), Step::Endless(vec![0; 4096])],
        "/missing" => answer(404, &[], b""),
        _ => serve(request, "\"1\"", &sealed("1.6")),
    })
    .await;
    let host = Host::empty();
    for (path, expected) in [
        ("/missing", "note"),
        ("/endless", "note"),
        ("/forged", "note"),
        ("/note", "outdated"),
    ] {
        let note = Source::parse(&format!("http://{}{path}", server.address));
        let mut updater = host.updater(&server.url()).note(note.expect("good"));
        let report = updater.check().await;
        assert!(["updated", "unchanged"].contains(&code(&report)), "{path}");
        let codes: Vec<_> = report.warnings.iter().map(|it| it.code).collect();
        assert_eq!(codes, [expected], "{path}: {:?}", report.warnings);
    }
}

#[tokio::test]
async fn a_downgrade_is_taken_if_it_is_named() {
    let mut host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, request| serve(request, "\"1\"", &sealed("1.4"))).await;
    host.policy.allow_downgrade = Some((name("wireguard"), release("1.3")));
    let report = host.update(&server.url()).await;
    assert_eq!(code(&report), "rollback");
    assert!(reason(&report).ends_with(
        "release 1.4 is older than 1.5, which is installed; install a newer release, or allow \
         this one with --name wireguard --allow-downgrade 1.4"
    ));
    host.policy.allow_downgrade = Some((name("wireguard"), release("1.4")));
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert!(host.holds(&sealed("1.4")));
}
