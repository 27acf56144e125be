//! Downloads that break and resume, in one check or in the next.

use std::fs;
use std::time::Duration;

use crate::server::*;
use crate::support::*;

const TAG: &str = "\"one\"";

#[tokio::test]
async fn a_download_that_breaks_goes_on_at_once() {
    let host = Host::with(&sealed("1.5"));
    let new = sealed("1.6");
    let file = new.clone();
    let server = Server::new(move |number, request| {
        let whole = serve(request, TAG, &file);
        if number < 3 {
            cut(whole, 30_000)
        } else {
            whole
        }
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert!(host.holds(&new));
    let seen = server.seen();
    let asked: Vec<_> = seen.iter().map(Request::range).collect();
    assert_eq!(asked, [None, Some(30_000), Some(60_000), Some(90_000)]);
    assert!(
        seen[1..]
            .iter()
            .all(|it| it.header("if-range") == Some(TAG))
    );
    assert_eq!(host.left(), ["module.wasm.update"]);
}

#[tokio::test]
async fn one_that_comes_no_further_goes_on_with_the_next_check() {
    let old = sealed("1.5");
    let host = Host::with(&old);
    let new = sealed("1.6");
    let file = new.clone();
    let server = Server::new(move |number, request| match number {
        0 => cut(serve(request, TAG, &file), 70_000),
        1 => cut(serve(request, TAG, &file), 0),
        _ => serve(request, TAG, &file),
    })
    .await;
    let report = host.update(&server.url()).await;
    assert_eq!(code(&report), "connection", "{:?}", report.outcome);
    assert!(host.holds(&old));
    assert_eq!(host.left(), ["module.wasm.part"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let part = fs::metadata(host.folder.join("module.wasm.part")).expect("there");
        assert_eq!(part.permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(server.seen()[2].range(), Some(70_000));
    assert!(host.holds(&new));
    assert_eq!(host.left(), ["module.wasm.update"]);
}

#[tokio::test]
async fn one_that_is_given_up_in_the_middle_goes_on_too() {
    let host = Host::with(&sealed("1.5"));
    let new = sealed("1.6");
    let file = new.clone();
    let server = Server::new(move |number, request| match number {
        0 => {
            let mut half = cut(serve(request, TAG, &file), 50_000);
            half.push(Step::Wait(Duration::from_secs(60)));
            half
        }
        _ => serve(request, TAG, &file),
    })
    .await;
    let mut updater = host.updater(&server.url());
    let patience = Duration::from_millis(200);
    let checked = tokio::time::timeout(patience, updater.check()).await;
    assert!(checked.is_err(), "it hangs, and its caller has had enough");
    assert_eq!(code(&updater.check().await), "updated");
    assert!(server.seen()[1].range().is_some_and(|it| it > 0));
    assert!(host.holds(&new));
}

#[tokio::test]
async fn another_version_is_taken_from_its_beginning() {
    // A release came out while the download was interrupted.
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|number, request| match number {
        0 => cut(serve(request, TAG, &sealed("1.6")), 40_000),
        _ => serve(request, "\"two\"", &sealed("1.7")),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(server.seen()[1].range(), Some(40_000));
    assert!(host.holds(&sealed("1.7")));
}

#[tokio::test]
async fn a_part_of_another_version_is_not_appended() {
    // A server that does not support If-Range.
    let careless = |request: &Request, tag: &str, file: &[u8]| {
        let mut request = request.clone();
        request.headers.remove("if-range");
        serve(&request, tag, file)
    };
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(move |number, request| match number {
        0 => cut(serve(request, TAG, &sealed("1.6")), 40_000),
        _ => careless(request, "\"two\"", &sealed("1.7")),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    let asked: Vec<_> = server.seen().iter().map(Request::range).collect();
    assert_eq!(asked, [None, Some(40_000), None]);
    assert!(host.holds(&sealed("1.7")));

    // A server whose tag stays the same: the seal reveals it, and the next check starts again.
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(move |number, request| match number {
        0 => cut(serve(request, TAG, &sealed("1.6")), 40_000),
        _ => careless(
            request,
            TAG,
            &sealed_of(manifest("1.7"), &[body(60_000), body(9)].concat()[..60_020]),
        ),
    })
    .await;
    let report = host.update(&server.url()).await;
    assert!(!["updated", "unchanged"].contains(&code(&report)));
    assert!(host.holds(&sealed("1.5")));
    assert!(!host.left().contains(&"module.wasm.part".to_owned()));
}

#[tokio::test]
async fn a_wrong_range_is_not_believed() {
    for range in [
        "bytes 0-99/100",
        "bytes 39999-100/101",
        "bytes */100",
        "40000",
        "",
    ] {
        let host = Host::with(&sealed("1.5"));
        let server = Server::new(move |number, request| match number {
            0 => cut(serve(request, TAG, &sealed("1.6")), 40_000),
            1 => answer(206, &[("ETag", TAG), ("Content-Range", range)], b"wrong"),
            _ => serve(request, TAG, &sealed("1.6")),
        })
        .await;
        assert_eq!(
            code(&host.update(&server.url()).await),
            "updated",
            "{range}"
        );
        let asked: Vec<_> = server.seen().iter().map(Request::range).collect();
        assert_eq!(asked, [None, Some(40_000), None]);
        assert!(host.holds(&sealed("1.6")));
    }
}

#[tokio::test]
async fn a_server_that_never_sends_the_rest_is_not_asked_for_ever() {
    let host = Host::with(&sealed("1.5"));
    // Always one byte more.
    let server = Server::new(|_, request| cut(serve(request, TAG, &sealed("1.6")), 1)).await;
    assert_eq!(code(&host.update(&server.url()).await), "connection");
    assert!(server.seen().len() <= 6, "{}", server.seen().len());
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|number, request| match number {
        0 => cut(serve(request, TAG, &sealed("1.6")), 1),
        _ => answer(416, &[], b""),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "status");
    assert!(server.seen().len() <= 4);
}

#[tokio::test]
async fn without_a_validator_nothing_is_kept() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, _| cut(answer(200, &[], &sealed("1.6")), 40_000)).await;
    assert_eq!(code(&host.update(&server.url()).await), "connection");
    assert_eq!(host.left(), [""; 0]);
    // A weak tag may stand for several files.
    let server =
        Server::new(|_, _| cut(answer(200, &[("ETag", "W/\"1\"")], &sealed("1.6")), 40_000)).await;
    assert_eq!(code(&host.update(&server.url()).await), "connection");
    assert_eq!(host.left(), [""; 0]);
}

#[tokio::test]
async fn a_part_of_another_source_or_of_nothing_is_of_no_use() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|number, request| match number {
        0 => cut(serve(request, TAG, &sealed("1.6")), 70_000),
        1 => cut(serve(request, TAG, &sealed("1.6")), 0),
        _ => serve(request, TAG, &sealed("1.6")),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "connection");
    assert_eq!(host.left(), ["module.wasm.part"]);
    let elsewhere = format!("http://{}/elsewhere.wasm", server.address);
    assert_eq!(code(&host.update(&elsewhere).await), "updated");
    assert_eq!(server.seen()[2].range(), None);
    assert_eq!(host.left(), ["module.wasm.update"]);

    for rubbish in [b"".as_slice(), b"\n", b"{}\n", b"{\"source\": 1}\nrubbish"] {
        let host = Host::with(&sealed("1.5"));
        fs::write(host.folder.join("module.wasm.part"), rubbish).expect("written");
        let server = Server::new(|_, request| serve(request, TAG, &sealed("1.6"))).await;
        assert_eq!(code(&host.update(&server.url()).await), "updated");
        assert_eq!(server.seen()[0].range(), None);
        assert_eq!(host.left(), ["module.wasm.update"]);
    }
}
