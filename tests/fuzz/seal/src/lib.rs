//! Fuzz targets for files from any channel that claim to be sealed: functions of bytes. `README.md`
//! in the folder above says how to run one under a fuzzer.

mod known;

use watm_seal::{Manifest, Note, Refused, Root, Sealed, SignedRoot, State, add_signature, verify};

use known::{NOW, approving, file_of, key, root, signed_file};

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("sealed", sealed),
    ("manifest", manifest),
    ("root", root_or_note),
];

/// A file: only signed content is accepted, and a parsed file can be written again.
fn sealed(input: &[u8]) {
    let state = State::default();
    match verify(input, root(), &state, &approving(), NOW) {
        Ok(_) => assert_eq!(input, signed_file(), "accepted what nobody signed"),
        Err(refused) => check_line(&refused),
    }
    let Ok(sealed) = Sealed::parse(input) else {
        return;
    };
    let encoded = sealed.manifest().encode().expect("was read");
    assert_eq!(
        &Manifest::parse(&encoded).expect("was written"),
        sealed.manifest()
    );
    assert!(sealed.body().len() < input.len());
    if let Ok(more) = add_signature(input, &key(21)) {
        let again = Sealed::parse(&more).expect("was written");
        let signers = again.signers().expect("all are good");
        assert!(signers.contains(&key(21).public()));
        assert_eq!(again.body(), sealed.body());
        assert_eq!(again.chain(), sealed.chain());
    }
}

/// The bytes of a manifest with valid signatures: it is accepted or refused for its content.
fn manifest(input: &[u8]) {
    let manifest = match Manifest::parse(input) {
        Ok(manifest) => manifest,
        Err(refused) => return check_line(&refused),
    };
    assert_eq!(
        manifest.encode().expect("was read"),
        input,
        "another encoding"
    );
    // Its body is filled in.
    let file = match file_of(manifest.clone()) {
        Ok(file) => file,
        Err(refused) => {
            assert_eq!(refused.code(), "too-large");
            return;
        }
    };
    let state = State::default();
    match verify(&file, root(), &state, &approving(), NOW) {
        Ok(verified) => {
            let proof = verified.proof().expect("is sealed");
            assert!(manifest.name.as_str().starts_with("demo/"));
            assert!(manifest.not_before <= NOW && NOW < manifest.expires);
            assert!(manifest.release.epoch <= root().record().epoch);
            assert!(manifest.requires.is_empty());
            let ceiling = &root().record().delegations[0].ceiling;
            assert!(manifest.capabilities.beyond(ceiling).is_empty());
            let mut after = state;
            after.accept(&verified);
            let known = after.known(&proof.manifest.name).expect("was accepted");
            assert_eq!(known.accepted.expect("was accepted").0, manifest.release);
        }
        Err(refused) => check_line(&refused),
    }
}

/// A root or a note: its encoding is unique, and only the known root is trusted or followed.
fn root_or_note(input: &[u8]) {
    match SignedRoot::from_file(input) {
        Ok(signed) => {
            assert_eq!(signed.to_file(), input, "another encoding");
            if signed.signers().any(|signer| signer == key(1).public()) {
                assert_eq!(&signed, root().signed(), "signed what it did not");
            }
            // A root that signs itself is not trusted.
            if let Ok(other) = Root::trust(signed.clone()) {
                assert!(other.id() == root().id() || root().advance(&signed).is_err());
            }
        }
        Err(refused) => check_line(&refused),
    }
    match Note::from_file(input) {
        Ok(note) => {
            assert_eq!(note.to_file(), input, "another encoding");
            assert!(note.verify(root(), &State::default(), NOW).is_err());
        }
        Err(refused) => check_line(&refused),
    }
}

/// A refusal is one line, not too long.
fn check_line(refused: &Refused) {
    let line = refused.to_string();
    assert!(
        !line.chars().any(char::is_control),
        "not one line: {line:?}"
    );
    assert!(line.len() <= 4000, "too long: {line}");
    assert!(!refused.code().is_empty());
}
