//! The cache of compiled modules: reuse, damage and permissions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use watm_runtime::{CacheDir, Engine, Server};

use watm_test_support::{
    LOCALHOST, assert_serves, directory, for_development, guest_bytes, records_about,
};

/// An empty custom section with the name `a`, which makes another module of one.
const CUSTOM_SECTION: [u8; 4] = [0, 2, 1, b'a'];

fn engine(path: &Path) -> Result<Engine, watm_runtime::Error> {
    Engine::new(for_development(CacheDir::Path(path.to_owned())))
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .collect();
    entries.sort();
    entries
}

fn load_and_serve(engine: &Engine) {
    let module = engine.load("cached", guest_bytes()).expect("loads");
    let server = Server::builder(&module)
        .udp("listen", LOCALHOST)
        .start()
        .expect("starts");
    assert_serves(&server);
}

#[test]
fn a_compiled_module_is_kept_and_used_again() {
    let path = directory("cache hit").join("made/by/the/engine");
    load_and_serve(&engine(&path).expect("a private directory"));
    let [entry] = entries(&path).try_into().expect("one entry");
    // Writing replaces the file, which a link to it shows.
    let link = path.join("link");
    fs::hard_link(&entry, &link).expect("linked");
    let second = engine(&path).expect("a private directory");
    let begin = Instant::now();
    load_and_serve(&second);
    println!("cached load and start: {:?}", begin.elapsed());
    assert_eq!(entries(&path), std::slice::from_ref(&entry));
    fs::write(&link, b"the same file").expect("written");
    assert_eq!(fs::read(&entry).expect("readable"), b"the same file");
}

#[test]
fn entries_make_room_in_the_order_of_their_use() {
    let path = directory("cache room");
    private(&path);
    let of = |days: u64| SystemTime::now() - Duration::from_secs(days * 86_400);
    let place = |name: &str, bytes: u64, time: SystemTime| {
        let file = fs::File::create(path.join(name)).expect("created");
        // Sparse, so that it takes no room on the disk.
        file.set_len(bytes).expect("extended");
        file.set_modified(time).expect("set");
    };
    let names = || entries(&path).into_iter().collect::<BTreeSet<_>>();
    load_and_serve(&engine(&path).expect("a private directory"));
    let [own] = entries(&path).try_into().expect("one entry");
    let file = fs::File::options().write(true).open(&own).expect("opened");
    file.set_modified(of(9)).expect("set");
    // Use makes the module's entry the newest.
    load_and_serve(&engine(&path).expect("a private directory"));
    place("a.bin", 300 << 20, of(3));
    place("b.bin", 200 << 20, of(2));
    place("c.bin", 100 << 20, of(1));
    place("d.tmp", 1, of(1));
    place("e.tmp", 1, of(0));
    place("other", 1 << 30, of(9));
    let mut another = guest_bytes().to_vec();
    another.extend(CUSTOM_SECTION);
    let engine = engine(&path).expect("a private directory");
    engine.load("another", &another).expect("loads");
    let names = names();
    for (name, stays) in [("a.bin", false), ("b.bin", true), ("c.bin", true)] {
        assert_eq!(names.contains(&path.join(name)), stays, "{name}");
    }
    assert!(names.contains(&own), "it was used last");
    assert_eq!(names.len(), 4, "{names:?}");
    // Files that are no entries stay, except for those that a process left behind.
    for (name, stays) in [("d.tmp", false), ("e.tmp", true), ("other", true)] {
        assert_eq!(path.join(name).exists(), stays, "{name}");
    }
}

#[test]
fn what_cannot_be_removed_leaves_no_room() {
    let path = directory("cache stuck");
    private(&path);
    records_about("");
    let stuck = path.join("stuck.bin");
    fs::create_dir(&stuck).expect("created");
    let large = fs::File::create(path.join("large.bin")).expect("created");
    large.set_len(512 << 20).expect("extended");
    // Newer than the other.
    let soon = SystemTime::now() + Duration::from_secs(60);
    large.set_modified(soon).expect("set");
    load_and_serve(&engine(&path).expect("a private directory"));
    assert_eq!(entries(&path), [path.join("large.bin"), stuck]);
    let warning = format!("{}/", path.display());
    let warned = records_about(&warning);
    assert!(
        warned
            .iter()
            .any(|record| record.text.contains("not cached")),
        "{warned:?}"
    );
}

#[test]
fn damaged_entries_are_compiled_again() {
    let path = directory("cache damage");
    private(&path);
    // Collects records from here on.
    records_about("");
    load_and_serve(&engine(&path).expect("a private directory"));
    let [entry] = entries(&path).try_into().expect("one entry");
    let intact = fs::read(&entry).expect("readable");
    let mut flipped = intact.clone();
    flipped[intact.len() / 2] ^= 1;
    let half = &intact[..intact.len() / 2];
    let refusals = || records_about(&format!("{}: not written", entry.display())).len();
    // Each with the number of warnings by then. An entry without a whole tag does not count.
    for (damaged, warnings) in [(&flipped[..], 1), (half, 2), (&intact[..7], 2), (b"", 2)] {
        fs::write(&entry, damaged).expect("written");
        load_and_serve(&engine(&path).expect("a private directory"));
        // Written again under the same key: whole again.
        assert!(
            fs::read(&entry).expect("readable") == intact,
            "still damaged"
        );
        assert_eq!(refusals(), warnings);
    }
}

#[test]
fn entries_under_another_key_are_not_trusted() {
    let path = directory("cache key");
    private(&path);
    load_and_serve(&engine(&path).expect("a private directory"));
    let [entry] = entries(&path).try_into().expect("one entry");
    let before = fs::read(&entry).expect("readable");
    fs::write(path.join("key"), [7; 32]).expect("written");
    load_and_serve(&engine(&path).expect("a private directory"));
    assert!(
        fs::read(&entry).expect("readable")[..32] != before[..32],
        "the tag is new"
    );
}

#[cfg(unix)]
#[test]
fn a_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let path = directory("cache mode");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("set");
    let message = engine(&path).err().expect("refused").to_string();
    assert!(message.contains("lets other users write"), "{message}");
}

#[cfg(unix)]
#[test]
fn what_the_engine_makes_is_private() {
    use std::os::unix::fs::PermissionsExt;

    let path = directory("cache modes").join("new");
    load_and_serve(&engine(&path).expect("a private directory"));
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("key")), 0o600);
    assert_eq!(mode(&entries(&path)[0]), 0o600);
}

#[cfg(unix)]
fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("set");
}

#[cfg(not(unix))]
fn private(_: &Path) {}
