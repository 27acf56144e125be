//! The files of a state: each is read, replaced and removed as a whole.

use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use watm_seal::state::{Files, System, follow_links, replace, replace_shared, write_new};

/// Returns a new folder for a test.
fn made(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("watm-files-{}-{test}", process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let folder = made("read");
    let file = folder.join("file");
    assert_eq!(System.read(&file, 10).unwrap(), None);
    fs::write(&file, [7; 10]).unwrap();
    assert_eq!(System.read(&file, 10).unwrap(), Some(vec![7; 10]));
    let larger = System.read(&file, 9).unwrap_err();
    assert_eq!(larger.to_string(), "is larger than 9 bytes");
    // Any error but that of a missing file is one.
    assert!(System.read(&folder, 10).is_err());
    #[cfg(unix)]
    assert!(System.read(&file.join("below"), 10).is_err());
}

#[test]
fn a_file_is_removed_if_it_is_there() {
    let folder = made("remove");
    let file = folder.join("file");
    fs::write(&file, b"x").unwrap();
    System.remove(&file).unwrap();
    assert!(!file.exists());
    System.remove(&file).unwrap();
    assert!(System.remove(&folder).is_err());
}

#[test]
fn a_lock_waits_for_the_one_before() {
    let path = made("lock").join("lock");
    let first = System.lock(&path).unwrap();
    let (has, locked) = mpsc::channel();
    let other = thread::spawn(move || {
        let _second = System.lock(&path).unwrap();
        has.send(()).unwrap();
    });
    assert!(locked.recv_timeout(Duration::from_millis(100)).is_err());
    drop(first);
    locked.recv_timeout(Duration::from_secs(60)).unwrap();
    other.join().unwrap();
}

#[test]
fn a_new_file_takes_no_others_place() {
    let file = made("new").join("key");
    write_new(&file, b"first").unwrap();
    assert!(write_new(&file, b"second").is_err());
    assert_eq!(fs::read(&file).unwrap(), b"first");
}

#[test]
fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
    let folder = made("replace");
    let file = folder.join("file");
    replace(&System, &file, b"one").unwrap();
    replace(&System, &file, b"two").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");
    // A folder with content is not replaced by a file.
    fs::create_dir_all(folder.join("taken/full")).unwrap();
    assert!(replace(&System, &folder.join("taken"), b"x").is_err());
    let mut left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["file", "taken"]);
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let folder = made("links");
    let (file, link) = (folder.join("file"), folder.join("link"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    assert_eq!(follow_links(&link).unwrap(), file);
    replace_shared(&link, b"one").unwrap();
    replace_shared(&link, b"two").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // A ring of links, and a path below a file.
    std::os::unix::fs::symlink("ring", folder.join("ring")).unwrap();
    assert!(follow_links(&folder.join("ring")).is_err());
    assert!(follow_links(&file.join("below")).is_err());
    assert!(replace_shared(&file.join("below"), b"x").is_err());
}
