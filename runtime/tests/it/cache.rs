//! The cache of compiled modules: reuse, damage and permissions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use watm_runtime::{CacheDir, Engine, Server};

use watm_test_support::{
    LOCALHOST, assert_serves, directory, for_development, guest_bytes, records_about,
};

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
    let written = fs::metadata(&entry)
        .expect("there")
        .modified()
        .expect("a time");
    let second = engine(&path).expect("a private directory");
    let begin = Instant::now();
    load_and_serve(&second);
    println!("cached load and start: {:?}", begin.elapsed());
    assert_eq!(entries(&path), std::slice::from_ref(&entry));
    assert_eq!(
        fs::metadata(&entry)
            .expect("there")
            .modified()
            .expect("a time"),
        written
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
