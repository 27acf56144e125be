//! Failing downloads and hostile servers: the old module stays, to the last bit.

use std::time::Duration;

use tokio::time::timeout;
use watm_seal::{DAY, Manifest, SignedRoot, seal};
use watm_update::Outcome;

use crate::server::*;
use crate::support::*;

/// Asks a server with this script, and checks that nothing changes except as expected.
async fn refuses(expected: &str, script: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
    let old = sealed("1.5");
    let host = Host::with(&old);
    let server = Server::new(move |_, request| script(request)).await;
    let report = host.update(&server.url()).await;
    assert_eq!(code(&report), expected, "{:?}", report.outcome);
    assert_eq!(report.source, server.url());
    assert!(host.holds(&old), "the old module stays");
    assert_eq!(host.left(), [""; 0], "and nothing else is left");
}

/// Checks a file from a well-behaved server.
async fn refuses_file(expected: &str, file: Vec<u8>) {
    refuses(expected, move |request| serve(request, "\"1\"", &file)).await;
}

#[tokio::test]
async fn a_status_that_is_not_200() {
    for status in [204, 404, 410, 500, 503] {
        refuses("status", move |_| answer(status, &[], b"no")).await;
    }
    for status in [401, 403] {
        refuses("unauthorized", move |_| answer(status, &[], b"who?")).await;
    }
    // Nothing was known that it could match.
    refuses("status", |_| answer(304, &[], b"")).await;
    refuses("status", |_| {
        answer(206, &[("Content-Range", "bytes 0-1/2")], b"no")
    })
    .await;
}

#[tokio::test]
async fn an_endless_body() {
    refuses("too-large", |_| {
        vec![head(200, &[]), Step::Endless(vec![0; 1 << 20])]
    })
    .await;
    let chunk = [b"100000\r\n".as_slice(), &[0; 1 << 20], b"\r\n"].concat();
    refuses("too-large", move |_| {
        let chunked = head(200, &[("Transfer-Encoding", "chunked")]);
        vec![chunked, Step::Endless(chunk.clone())]
    })
    .await;
}

#[tokio::test]
async fn endless_headers() {
    refuses("connection", |_| {
        let begin = Step::Send(b"HTTP/1.1 200 So\r\n".to_vec());
        vec![
            begin,
            Step::Endless(b"X-More: of the same\r\n".repeat(1000)),
        ]
    })
    .await;
}

#[tokio::test]
async fn a_length_that_is_a_lie() {
    refuses("too-large", |_| {
        vec![head(200, &[("Content-Length", "1099511627776")])]
    })
    .await;
    let file = sealed("1.6");
    let length = (file.len() - 1).to_string();
    refuses("bad-hash", move |_| {
        let head = head(200, &[("Content-Length", length.as_str())]);
        vec![head, Step::Send(file.clone())]
    })
    .await;
}

#[tokio::test]
async fn a_packed_body() {
    for encoding in ["gzip", "br", "zstd, gzip"] {
        refuses("encoded", move |request| {
            assert_eq!(request.header("accept-encoding"), None);
            answer(200, &[("Content-Encoding", encoding)], b"\x1f\x8b\x08")
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_is_silent_or_slow() {
    let long = Duration::from_secs(60);
    refuses("timed-out", move |_| vec![Step::Wait(long)]).await;
    refuses("timed-out", move |_| {
        vec![head(200, &[("Content-Length", "100")]), Step::Wait(long)]
    })
    .await;
    // A byte at a time is never silent for long, but takes too long in all.
    let old = sealed("1.5");
    let host = Host::with(&old);
    let server = Server::new(|_, _| {
        let mut answer = vec![head(200, &[("Content-Length", "100000")])];
        for _ in 0..10_000 {
            answer.push(Step::Send(b"\0".to_vec()));
            answer.push(Step::Wait(Duration::from_millis(20)));
        }
        answer
    })
    .await;
    let network = watm_update::NetworkOptions {
        total_timeout: Duration::from_millis(600),
        ..impatient()
    };
    let report = host.updater(&server.url()).network(network).check().await;
    assert_eq!(code(&report), "timed-out");
    // Long before that it is reported as too slow.
    let network = watm_update::NetworkOptions {
        total_timeout: Duration::from_secs(60),
        ..impatient()
    };
    let mut updater = host.updater(&server.url()).network(network);
    let report = timeout(Duration::from_secs(30), updater.check()).await;
    let Outcome::Refused { code, reason } = report.expect("it ends").outcome else {
        panic!("nothing good has come");
    };
    assert_eq!(code, "timed-out");
    assert!(
        reason.contains("bytes in 0.4 s; must be at least 4096"),
        "{reason}"
    );
    assert!(host.holds(&old));
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, _| {
        let mut answer = vec![Step::Send(b"HTTP/1.1 200 So\r\nX-More: ".to_vec())];
        for _ in 0..10_000 {
            answer.push(Step::Send(b"a".to_vec()));
            answer.push(Step::Wait(Duration::from_millis(20)));
        }
        answer
    })
    .await;
    let network = watm_update::NetworkOptions {
        total_timeout: Duration::from_secs(60),
        ..impatient()
    };
    let mut updater = host.updater(&server.url()).network(network);
    let report = timeout(Duration::from_secs(30), updater.check()).await;
    assert_eq!(code(&report.expect("it ends")), "timed-out");
}

#[tokio::test]
async fn nobody_there() {
    let old = sealed("1.5");
    let host = Host::with(&old);
    let gone = Server::new(|_, _| Vec::new()).await.url();
    assert_eq!(code(&host.update(&gone).await), "connection");
    assert!(host.holds(&old));
    refuses("connection", |_| vec![]).await;
    refuses("connection", |_| {
        vec![Step::Send(b"\x16\x03\x01 what?\r\n\r\n".to_vec())]
    })
    .await;
}

#[tokio::test]
async fn redirections_without_end() {
    refuses("redirect", |_| {
        answer(302, &[("Location", "/module.wasm")], b"")
    })
    .await;
    refuses("redirect", |request| {
        let next = format!("/{}", request.path.len());
        answer(301, &[("Location", next.as_str())], b"")
    })
    .await;
    for elsewhere in [
        "file:///etc/hostname",
        "ftp://127.0.0.1/a",
        "gopher://127.0.0.1/a",
    ] {
        let script = move |_: &Request| answer(302, &[("Location", elsewhere)], b"");
        let host = Host::with(&sealed("1.5"));
        let server = Server::new(move |_, request| script(request)).await;
        let report = host.update(&server.url()).await;
        let Outcome::Refused { reason, .. } = report.outcome else {
            panic!("it was followed");
        };
        assert!(!reason.contains("from HTTPS"), "{reason}");
        assert!(host.holds(&sealed("1.5")));
    }
    let script = |_: usize, _: &Request| answer(302, &[("Location", "gopher://127.0.0.1/a")], b"");
    let report = Host::empty().update(&Server::new(script).await.url()).await;
    let expected = Outcome::Refused {
        code: "redirect",
        reason: "redirection: to gopher:; must be HTTPS or HTTP".to_owned(),
    };
    assert_eq!(report.outcome, expected);
}

#[tokio::test]
async fn something_else_than_a_module() {
    refuses_file("not-wasm", b"<!DOCTYPE html><title>Log in</title>".to_vec()).await;
    refuses_file("not-wasm", Vec::new()).await;
    refuses_file("unsealed", body(10)).await;
    for length in [7, 100, 99_999] {
        let mut file = sealed("1.6");
        file.truncate(length);
        let host = Host::with(&sealed("1.5"));
        let server = Server::new(move |_, request| serve(request, "\"1\"", &file)).await;
        let report = host.update(&server.url()).await;
        assert!(
            matches!(report.outcome, Outcome::Refused { .. }),
            "{length}"
        );
        assert!(host.holds(&sealed("1.5")));
    }
    let mut changed = sealed("1.6");
    *changed.last_mut().expect("some") ^= 1;
    refuses_file("bad-hash", changed).await;
}

#[tokio::test]
async fn a_module_that_is_not_the_one() {
    let with = |change: fn(&mut Manifest)| {
        let mut manifest = manifest("1.6");
        change(&mut manifest);
        sealed_of(manifest, &body(10))
    };
    refuses_file("wrong-name", with(|it| it.name = name("plain"))).await;
    refuses_file("wrong-name", with(|it| it.channel = name("canary"))).await;
    refuses_file("wrong-name", with(|it| it.audience = Some(name("others")))).await;
    refuses_file("expired", with(|it| it.expires = now() - 1)).await;
    refuses_file("not-yet-valid", with(|it| it.not_before = now() + DAY)).await;
    refuses_file("delegation", with(|it| it.release = release("2.1"))).await;
    let stranger = seal(&body(10), manifest("1.6"), &[], &[key(99)]);
    refuses_file("threshold", stranger.expect("sealed")).await;
    let mut other = record();
    other.epoch = 2;
    let other = Manifest {
        root: SignedRoot::new(other).expect("possible").id(),
        ..manifest("1.6")
    };
    refuses_file("unknown-root", sealed_of(other, &body(10))).await;
}

#[tokio::test]
async fn an_older_module_or_another_of_the_same_number() {
    // The state is empty: the release in place is a floor by itself.
    refuses_file("rollback", sealed("1.4")).await;
    refuses_file("equivocation", sealed_of(manifest("1.5"), &body(10))).await;
    // A release that the host has run is a floor even if its file is gone.
    let host = Host::empty();
    host.approve(&sealed("1.5"));
    let server = Server::new(|_, request| serve(request, "\"1\"", &sealed("1.4"))).await;
    assert_eq!(code(&host.update(&server.url()).await), "rollback");
    assert_eq!(host.in_place(), None);
}

#[tokio::test]
async fn a_disk_that_refuses() {
    let host = Host::empty();
    // The place is a folder.
    std::fs::create_dir(host.place().path()).expect("made");
    let server = Server::new(|_, request| serve(request, "\"1\"", &sealed("1.5"))).await;
    assert_eq!(code(&host.update(&server.url()).await), "place");
    let mut host = Host::empty();
    host.folder.push("missing");
    assert_eq!(code(&host.update(&server.url()).await), "place");
}

#[tokio::test]
async fn a_state_that_is_damaged() {
    let old = sealed("1.5");
    let host = Host::with(&old);
    std::fs::write(host.folder.join("state"), b"what?").expect("written");
    let server = Server::new(|_, request| serve(request, "\"1\"", &sealed("1.6"))).await;
    assert_eq!(code(&host.update(&server.url()).await), "state");
    assert!(host.holds(&old));
}
