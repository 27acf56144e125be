//! Repeated checks of a source.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;
use watm_update::{Outcome, Watch};

use crate::server::*;
use crate::support::*;

/// Returns the seconds until the next check.
fn due(watch: &Watch) -> f64 {
    watch.due().duration_since(Instant::now()).as_secs_f64()
}

#[tokio::test]
async fn a_new_file_is_noticed() {
    let host = Host::empty();
    let source = host.folder.join("from.wasm");
    fs::write(&source, sealed("1.5")).expect("written");
    let updater = host.updater(source.to_str().expect("text"));
    let mut watch = Watch::new(updater, Duration::from_millis(50));
    assert_eq!(code(&watch.next().await), "updated");
    assert_eq!(code(&watch.next().await), "unchanged");
    fs::write(&source, sealed("1.6")).expect("written");
    assert_eq!(code(&watch.next().await), "updated");
    assert!(host.holds(&sealed("1.6")));
}

#[tokio::test]
async fn a_source_that_fails_is_asked_soon_or_when_it_says() {
    for (status, headers, seconds) in [
        (500, vec![], 10.0),
        (503, vec![("Retry-After", "1000")], 1000.0),
        (429, vec![("Retry-After", "999999999")], 86_400.0),
        (
            503,
            vec![("Retry-After", "Sat, 21 Nov 2015 10:00:00 GMT")],
            10.0,
        ),
        (503, vec![("Retry-After", "tomorrow")], 10.0),
    ] {
        let host = Host::empty();
        let server = Server::new(move |_, _| answer(status, &headers, b"")).await;
        let hour = Duration::from_secs(3600);
        let mut watch = Watch::new(host.updater(&server.url()), hour);
        assert_eq!(code(&watch.next().await), "status");
        let due = due(&watch);
        assert!((0.89 * seconds..1.11 * seconds).contains(&due), "{due}");
    }
}

#[tokio::test]
async fn hosts_do_not_all_ask_at_once() {
    let hour = Duration::from_secs(3600);
    let mut all = Vec::new();
    for _ in 0..8 {
        let host = Host::with(&sealed("1.5"));
        let source = host.place().path().to_str().expect("text").to_owned();
        let mut watch = Watch::new(host.updater(&source), hour);
        assert_eq!(code(&watch.next().await), "unchanged");
        all.push(due(&watch));
    }
    assert!(
        all.iter().all(|due| (3239.0..3961.0).contains(due)),
        "{all:?}"
    );
    let (least, most) = all
        .iter()
        .fold((f64::MAX, 0.0), |(least, most): (f64, f64), due| {
            (least.min(*due), most.max(*due))
        });
    assert!(most - least > 1.0, "{all:?}");
}

#[tokio::test]
async fn an_approval_is_noticed_before_the_next_check() {
    let mut manifest = manifest("1.6");
    manifest.capabilities.flows = 10;
    let asking = sealed_of(manifest, &body(10));
    let host = Host::with(&sealed("1.5"));
    let source = host.folder.join("from.wasm");
    fs::write(&source, &asking).expect("written");
    let updater = host.updater(source.to_str().expect("text"));
    let mut watch = Watch::new(updater, Duration::from_secs(3600));
    assert_eq!(code(&watch.next().await), "pending");
    host.approve(&asking);
    let began = Instant::now();
    let report = watch.next().await;
    assert!(matches!(report.outcome, Outcome::Updated { .. }));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(host.holds(&asking));
}
