//! Watched folders.

use std::fs;

use watm_seal::Manifest;

use crate::support::*;

struct Folder {
    host: Host,
    path: String,
}

impl Folder {
    fn new() -> Folder {
        let host = Host::empty();
        let folder = host.folder.join("watched");
        fs::create_dir(&folder).expect("made");
        let path = folder.to_str().expect("text").to_owned();
        Folder { host, path }
    }

    fn put(&self, name: &str, file: &[u8]) {
        fs::write(self.host.folder.join("watched").join(name), file).expect("written");
    }
}

#[tokio::test]
async fn the_newest_good_module_of_the_name_is_taken() {
    let folder = Folder::new();
    let mut updater = folder.host.updater(&folder.path);
    assert_eq!(code(&updater.check().await), "no-candidate");
    folder.put("a.wasm", &sealed("1.5"));
    folder.put("b.wasm", &sealed("1.10"));
    folder.put("c.wasm", &sealed("1.9"));
    folder.put(
        "other.wasm",
        &sealed_of(
            Manifest {
                name: name("plain"),
                ..manifest("1.99")
            },
            &body(1),
        ),
    );
    assert_eq!(code(&updater.check().await), "updated");
    assert!(folder.host.holds(&sealed("1.10")));
    let report = updater.check().await;
    assert_eq!(code(&report), "unchanged");
    assert_eq!(report.skipped, []);
    // A newer one, and one that claims to be newer still.
    folder.put("d.wasm", &sealed("1.11"));
    let mut changed = sealed("1.12");
    *changed.last_mut().expect("some") ^= 1;
    folder.put("e.wasm", &changed);
    folder.put("f.wasm", b"<html>");
    folder.put("g.wasm", &body(1));
    folder.put(
        "h.wasm",
        &sealed_of(
            Manifest {
                expires: now() - 1,
                ..manifest("1.13")
            },
            &body(1),
        ),
    );
    folder.put("not-looked-at.txt", b"<html>");
    for expected in ["updated", "unchanged"] {
        let report = updater.check().await;
        assert_eq!(code(&report), expected);
        let mut skipped: Vec<_> = report
            .skipped
            .iter()
            .map(|it| (it.file.file_name().and_then(|it| it.to_str()), it.code))
            .collect();
        skipped.sort_unstable();
        let all = [
            (Some("e.wasm"), "bad-hash"),
            (Some("f.wasm"), "not-wasm"),
            (Some("g.wasm"), "unsealed"),
            (Some("h.wasm"), "expired"),
        ];
        assert_eq!(skipped, all);
    }
    assert!(folder.host.holds(&sealed("1.11")));
    // Removing the newest causes no rollback.
    for file in ["d.wasm", "b.wasm"] {
        fs::remove_file(folder.host.folder.join("watched").join(file)).expect("removed");
    }
    assert_eq!(code(&updater.check().await), "unchanged");
    assert!(folder.host.holds(&sealed("1.11")));
}

#[tokio::test]
async fn a_file_that_is_mended_is_looked_at_again() {
    let folder = Folder::new();
    let mut updater = folder.host.updater(&folder.path);
    folder.put("a.wasm", &sealed("1.5")[..500]);
    assert_eq!(code(&updater.check().await), "no-candidate");
    // As if by a slow copy.
    folder.put("a.wasm", &sealed("1.5"));
    assert_eq!(code(&updater.check().await), "updated");
}

#[tokio::test]
async fn a_folder_is_bounded_and_needs_a_name() {
    let mut folder = Folder::new();
    for number in 0..257 {
        folder.put(&format!("{number}.wasm"), b"");
    }
    assert_eq!(
        code(&folder.host.update(&folder.path).await),
        "no-candidate"
    );
    folder.host.policy.name = None;
    assert_eq!(
        code(&folder.host.update(&folder.path).await),
        "no-candidate"
    );
}
