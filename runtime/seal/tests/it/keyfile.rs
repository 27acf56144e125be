//! Private keys at rest.

use watm_seal::state::write_new;
use watm_seal::{KeyError, KeyFile, PrivateKey, PublicKey};

use crate::support::*;

fn temporary(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // An error means that it does not exist.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("made");
    folder
}

#[test]
fn an_encrypted_key_comes_back_with_its_passphrase_alone() {
    let key = PrivateKey::generate().expect("randomness");
    let text = KeyFile::encrypt(&key, "correct horse").expect("encrypted");
    let file = KeyFile::parse(&text).expect("as written");
    assert!(file.is_encrypted());
    assert_eq!(file.public(), key.public());
    let opened = file.open(Some("correct horse")).expect("opens");
    assert_eq!(opened.public(), key.public());
    assert!(matches!(file.open(None), Err(KeyError::PassphraseNeeded)));
    let wrong = file.open(Some("Correct horse"));
    assert!(matches!(wrong, Err(KeyError::WrongPassphrase)));
    // The text reveals nothing of the seed.
    let plain = KeyFile::plain(&key);
    let seed = plain.lines().last().expect("three lines");
    let seed = seed.strip_prefix("seed ").expect("the seed");
    assert!(!text.contains(seed));
    // The same key and passphrase make another file.
    assert_ne!(
        KeyFile::encrypt(&key, "correct horse").expect("encrypted"),
        text
    );
}

#[test]
fn an_empty_passphrase_is_none() {
    let refused = KeyFile::encrypt(&key(1), "");
    assert!(matches!(refused, Err(KeyError::PassphraseEmpty)));
}

#[test]
fn a_plain_key_says_that_it_is() {
    let text = KeyFile::plain(&key(1));
    assert!(text.starts_with("watm private key v1, not encrypted\n"));
    let file = KeyFile::parse(&text).expect("as written");
    assert!(!file.is_encrypted());
    let opened = file.open(None).expect("opens");
    assert_eq!(opened.public(), key(1).public());
}

#[test]
fn another_public_key_in_the_file_is_noticed() {
    let text = KeyFile::encrypt(&key(1), "secret").expect("encrypted");
    let (own, other) = (key(1).public().to_string(), key(2).public().to_string());
    let file = KeyFile::parse(&text.replace(&own, &other)).expect("looks like one");
    let wrong = file.open(Some("secret"));
    assert!(matches!(wrong, Err(KeyError::WrongPassphrase)));
    let plain = KeyFile::plain(&key(1)).replace(&own, &other);
    assert!(KeyFile::parse(&plain).is_err());
}

#[test]
fn a_damaged_file_is_refused_by_its_line() {
    let text = KeyFile::encrypt(&key(1), "secret").expect("encrypted");
    let lines: Vec<&str> = text.lines().collect();
    for at in 0..4 {
        let mut damaged = lines.clone();
        damaged[at] = "else";
        let error = KeyFile::parse(&damaged.join("\n")).err().expect("damaged");
        let expected = format!("line {} of the key file", at + 1);
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    assert!(KeyFile::parse(&lines[..3].join("\n")).is_err());
    assert!(KeyFile::parse(&format!("{text}more\n")).is_err());
    // A cost that would take all memory is not tried.
    let greedy = text.replace("argon2id 65536 ", "argon2id 4294967295 ");
    assert_ne!(greedy, text);
    assert!(KeyFile::parse(&greedy).is_err());
}

#[test]
fn nothing_shows_a_private_key() {
    let shown = format!("{:?}", key(1));
    assert_eq!(shown, format!("PrivateKey of {}", key(1).public()));
}

#[test]
fn a_key_of_hexadecimal_digits_is_read_back() {
    let public = key(1).public();
    let read: PublicKey = public.to_string().parse().expect("a key");
    assert_eq!(read, public);
    assert!(
        public
            .to_string()
            .to_uppercase()
            .parse::<PublicKey>()
            .is_err()
    );
}

#[test]
fn a_key_file_is_its_owners_and_replaces_nothing() {
    let path = temporary("keyfile").join("release.key");
    write_new(&path, b"first").expect("written");
    let refused = write_new(&path, b"second").expect_err("there is one");
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).expect("read"), b"first");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
