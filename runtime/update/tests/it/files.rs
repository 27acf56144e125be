//! Files in place, modules kept aside, and several updates at once.

use std::fs;

use watm_seal::{Capabilities, Manifest};
use watm_update::Outcome;

use crate::server::*;
use crate::support::*;

/// Returns `wireguard` of this release, which requests a capability.
fn asking(number: &str) -> Vec<u8> {
    let asking = Manifest {
        capabilities: Capabilities {
            connect: ["tcp://*.example.com:443".parse().expect("a pattern")].into(),
            flows: 10,
            ..Capabilities::default()
        },
        ..manifest(number)
    };
    sealed_of(asking, &body(1000))
}

#[tokio::test]
async fn a_file_is_taken_from_a_path() {
    let host = Host::empty();
    let source = host.folder.join("from.wasm");
    let path = source.to_str().expect("text").to_owned();
    assert_eq!(code(&host.update(&path).await), "file");
    fs::write(&source, sealed("1.5")).expect("written");
    assert_eq!(code(&host.update(&path).await), "updated");
    assert_eq!(
        code(&host.update(&format!("file:{path}")).await),
        "unchanged"
    );
    fs::write(&source, sealed("1.4")).expect("written");
    assert_eq!(code(&host.update(&path).await), "rollback");
    fs::write(&source, b"").expect("written");
    assert_eq!(code(&host.update(&path).await), "not-wasm");
    fs::File::options()
        .write(true)
        .open(&source)
        .and_then(|file| file.set_len(watm_seal::MAX_FILE_BYTES as u64 + 1))
        .expect("sparse");
    assert_eq!(code(&host.update(&path).await), "too-large");
    assert!(host.holds(&sealed("1.5")));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        for file in fs::read_dir(&host.folder).expect("there") {
            let file = file.expect("read").path();
            let mode = fs::metadata(&file).expect("there").permissions().mode();
            // Hosts of other users load the module.
            let public = file == source || file == host.place().path();
            assert!(public || mode & 0o777 == 0o600, "{}", file.display());
        }
        // A device could block its reader indefinitely.
        assert_eq!(code(&host.update("/dev/zero").await), "file");
    }
}

#[cfg(unix)]
mod shared {
    use std::fs::{self, OpenOptions, Permissions};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
    use std::path::Path;

    use crate::support::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o777
    }

    /// Updates the place to this release, from a file.
    async fn update(host: &Host, number: &str) {
        let source = host.folder.join("from.wasm");
        fs::write(&source, sealed(number)).expect("written");
        let report = host.update(source.to_str().expect("text")).await;
        assert_eq!(code(&report), "updated", "{:?}", report.outcome);
    }

    #[tokio::test]
    async fn the_file_in_place_keeps_its_mode_and_its_owner() {
        let host = Host::with(&sealed("1.5"));
        let place = host.place();
        for (number, kept) in [("1.6", 0o644), ("1.7", 0o640), ("1.8", 0o600)] {
            fs::set_permissions(place.path(), Permissions::from_mode(kept)).expect("ours");
            update(&host, number).await;
            assert_eq!(mode(place.path()), kept);
        }
        // A user who may give files away does. For others the owner stays the same.
        let own = fs::metadata(place.path()).expect("there").uid();
        let owners = match own {
            0 => (12_345, 23_456),
            _ => (own, fs::metadata(place.path()).expect("there").gid()),
        };
        chown(place.path(), Some(owners.0), Some(owners.1)).expect("allowed");
        update(&host, "1.9").await;
        let found = fs::metadata(place.path()).expect("there");
        assert_eq!((found.uid(), found.gid()), owners);
        assert_eq!(mode(place.path()), 0o600);
    }

    #[tokio::test]
    async fn a_new_file_has_the_mode_that_the_umask_leaves() {
        let host = Host::empty();
        update(&host, "1.5").await;
        let probe = host.folder.join("probe");
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&probe);
        made.expect("made");
        assert_eq!(mode(host.place().path()), mode(&probe));
    }

    #[tokio::test]
    async fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        let host = Host::empty();
        let releases = host.folder.join("releases");
        fs::create_dir(&releases).expect("made");
        // Two links, one of them relative to its own folder, to a file that does not exist yet.
        symlink("current.wasm", releases.join("link.wasm")).expect("made");
        symlink("releases/link.wasm", host.place().path()).expect("made");
        let target = releases.join("current.wasm");
        for number in ["1.5", "1.6"] {
            update(&host, number).await;
            for link in [host.place().path(), &releases.join("link.wasm")] {
                assert!(fs::symlink_metadata(link).expect("there").is_symlink());
            }
            assert_eq!(fs::read(&target).expect("there"), sealed(number));
        }
        // Leftovers of a crash do not disturb another update by another link.
        assert!(releases.join("current.wasm.lock").exists());
    }
}

#[tokio::test]
async fn what_asks_for_more_waits_for_its_user() {
    let old = sealed("1.5");
    let host = Host::with(&old);
    let server = Server::new(|_, request| serve(request, "\"1\"", &asking("1.6"))).await;
    // The same at each repetition.
    for expected in [None, Some("\"1\"")] {
        let mut updater = host.updater(&server.url());
        let report = updater.check().await;
        let Outcome::Pending { module, more, file } = &report.outcome else {
            panic!("{:?}", report.outcome);
        };
        assert_eq!(module.manifest.release, release("1.6"));
        assert!(
            more.iter().any(|it| it.contains("*.example.com:443")),
            "{more:?}"
        );
        assert_eq!(fs::read(file).expect("kept"), asking("1.6"));
        assert!(host.holds(&old));
        let last = server.seen().pop().expect("asked");
        assert_eq!(last.header("if-none-match"), expected);
        assert!(updater.check_pending().await.is_none());
    }
    host.approve(&asking("1.6"));
    // The server need not send it again.
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert!(host.holds(&asking("1.6")));
    assert_eq!(host.left(), ["module.wasm.update"]);
    let last = server.seen().pop().expect("asked");
    assert_eq!(last.header("if-none-match"), Some("\"1\""));
}

#[tokio::test]
async fn what_waits_is_approved_by_its_number() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, request| serve(request, "\"1\"", &asking("1.6"))).await;
    let mut updater = host.updater(&server.url());
    assert_eq!(code(&updater.approve(release("1.6")).await), "no-candidate");
    assert_eq!(code(&updater.check().await), "pending");
    // The user has seen another release.
    assert_eq!(code(&updater.approve(release("1.7")).await), "wrong-name");
    assert!(host.holds(&sealed("1.5")));
    assert_eq!(code(&updater.approve(release("1.6")).await), "updated");
    assert!(host.holds(&asking("1.6")));
    // It has not run yet: until then the old one is no rollback for the host.
    let state = host.state().load().expect("read");
    let known = state.known(&name("wireguard")).expect("approved");
    assert!(known.approved.is_some() && known.accepted.is_none());
    assert_eq!(code(&updater.check().await), "unchanged");
}

#[tokio::test]
async fn what_waits_is_verified_again_before_it_is_used() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|_, request| serve(request, "\"1\"", &asking("1.6"))).await;
    let mut updater = host.updater(&server.url());
    assert_eq!(code(&updater.check().await), "pending");
    let mut changed = asking("1.6");
    *changed.last_mut().expect("some") ^= 1;
    fs::write(host.place().pending(), changed).expect("written");
    host.approve(&asking("1.6"));
    let report = updater.check_pending().await.expect("no longer waits");
    assert_eq!(code(&report), "bad-hash");
    assert!(host.holds(&sealed("1.5")));
    // It comes again from its source.
    assert_eq!(code(&updater.check().await), "updated");
    assert!(host.holds(&asking("1.6")));
}

#[tokio::test]
async fn what_waits_is_not_older_than_what_has_come_since() {
    let host = Host::with(&sealed("1.5"));
    let server = Server::new(|number, request| match number {
        0 => serve(request, "\"1\"", &asking("1.6")),
        _ => serve(request, "\"2\"", &sealed("1.7")),
    })
    .await;
    assert_eq!(code(&host.update(&server.url()).await), "pending");
    assert_eq!(code(&host.update(&server.url()).await), "updated");
    assert_eq!(
        host.left(),
        ["module.wasm.update"],
        "nothing waits any more"
    );
    assert!(host.holds(&sealed("1.7")));
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_one_place_take_turns() {
    let host = Host::with(&sealed("1.1"));
    let mut tasks = Vec::new();
    let servers: Vec<Server> = {
        let mut servers = Vec::new();
        for number in 2..10 {
            let file = sealed(&format!("1.{number}"));
            servers.push(Server::new(move |_, request| serve(request, "\"1\"", &file)).await);
        }
        servers
    };
    for server in &servers {
        let mut updater = host.updater(&server.url());
        tasks.push(tokio::spawn(async move { updater.check().await }));
    }
    for task in tasks {
        let report = task.await.expect("no panic");
        assert!(
            ["updated", "rollback"].contains(&code(&report)),
            "{:?}",
            report.outcome
        );
    }
    assert!(host.holds(&sealed("1.9")));
    assert_eq!(host.left(), ["module.wasm.update"]);
}

#[tokio::test]
async fn a_module_keeps_its_name_unless_another_is_asked_for() {
    let other = |number| {
        let manifest = Manifest {
            name: name("other"),
            ..manifest(number)
        };
        sealed_of(manifest, &body(1000))
    };
    let mut host = Host::with(&sealed("1.5"));
    host.policy.name = None;
    let source = host.folder.join("from.wasm");
    let path = source.to_str().expect("text");
    fs::write(&source, other("1.9")).expect("written");
    let report = host.update(path).await;
    let Outcome::Refused { code: why, reason } = &report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert_eq!(*why, "wrong-name");
    assert_eq!(reason, "other: its name is other; must be wireguard");
    assert!(host.holds(&sealed("1.5")));
    fs::write(&source, sealed("1.6")).expect("written");
    assert_eq!(code(&host.update(path).await), "updated");
    // The user wants another one there.
    host.policy.name = Some(name("other"));
    fs::write(&source, other("1.1")).expect("written");
    assert_eq!(code(&host.update(path).await), "updated");
    assert!(host.holds(&other("1.1")));
}
