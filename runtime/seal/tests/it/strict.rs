//! Each bound and each rule of the format by itself: files that another tool made and signed are
//! refused for the wrong field. A second check would notice many of these too.

use std::collections::BTreeSet;

use watm_seal::state::{StateError, StateFile};
use watm_seal::{
    Announcement, Capabilities, Manifest, Note, Refused, Root, RootRecord, SignedRoot, State, seal,
    verify,
};

use crate::support::*;

/// Returns the field that a refusal as malformed names.
fn field<T>(result: Result<T, Refused>) -> String {
    match result {
        Err(Refused::Malformed { field, .. }) => field,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is taken"),
    }
}

fn offset_of(bytes: &[u8], part: &[u8]) -> usize {
    bytes
        .windows(part.len())
        .position(|window| window == part)
        .expect("is there")
}

/// Makes a file of `plain` whose manifest is written as usual, then changed, then signed.
fn changed(manifest: Manifest, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let sealed = sealed_by(manifest, &[21]);
    let manifest = watm_seal::Sealed::parse(&sealed).expect("sealed");
    let mut manifest = manifest.manifest().encode().expect("possible");
    change(&mut manifest);
    by_hand(&body(), &[0], &manifest, &[21])
}

#[test]
fn what_is_put_together_by_hand_is_what_is_sealed() {
    assert_eq!(
        changed(plain_manifest(), |_| ()),
        sealed_by(plain_manifest(), &[21])
    );
}

#[test]
fn another_format_is_named() {
    let file = changed(plain_manifest(), |manifest| manifest[0] = 2);
    assert_eq!(field(check(&file)), "manifest format");
    let mut file = sealed_by(plain_manifest(), &[21]);
    let at = offset_of(&file, b"watm.seal") + 9;
    file[at] = 2;
    assert_eq!(field(check(&file)), "seal format");
    let mut root = root().signed().to_file();
    root[b"watm/root-file/v1\0".len() + 2] = 2;
    assert_eq!(field(SignedRoot::from_file(&root)), "root format");
}

#[test]
fn what_stands_behind_is_counted() {
    for more in [1, 40] {
        let file = changed(plain_manifest(), |manifest| {
            manifest.extend(vec![0; more]);
        });
        match check(&file) {
            Err(Refused::Malformed { field, reason }) => {
                assert_eq!(
                    (field.as_str(), reason),
                    ("manifest", format!("{more} unexpected bytes at the end"))
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_length_that_is_not_the_body_s_is_refused_though_the_hash_is() {
    let length = (body().len() as u64).to_le_bytes();
    let file = changed(plain_manifest(), |manifest| {
        let at = offset_of(manifest, &length);
        manifest[at] += 1;
    });
    assert_eq!(code(check(&file)), "bad-hash");
}

#[test]
fn roles_and_flags_have_no_other_values() {
    // After the name and the world: see `the_encoding_is_the_documented_one`.
    let file = changed(plain_manifest(), |manifest| manifest[71] |= 0x80);
    assert_eq!(field(check(&file)), "roles");
    let audience = offset_of(
        &plain_manifest().encode().expect("possible"),
        b"\x06\0stable",
    ) + 8;
    let file = changed(plain_manifest(), |manifest| manifest[audience] = 2);
    assert_eq!(field(check(&file)), "audience");
}

#[test]
fn a_name_stands_once_in_a_list() {
    for (requires, expected) in [(false, "floors"), (true, "requires")] {
        let mut manifest = plain_manifest();
        let list = match requires {
            false => &mut manifest.floors,
            true => &mut manifest.requires,
        };
        list.insert(name("b/x"), release("1.1"));
        list.insert(name("b/y"), release("1.2"));
        let file = changed(manifest, |manifest| {
            let at = offset_of(manifest, b"b/y");
            manifest[at + 2] = b'x';
        });
        assert_eq!(field(check(&file)), expected);
    }
}

/// Attack 19: the same signatures in another order would be another file.
#[test]
fn signatures_stand_in_one_order() {
    let file = sealed(manifest());
    let mut signers = [11, 12].map(|number| *key(number).public().as_bytes());
    signers.sort_unstable();
    let first = offset_of(&file, &signers[0]);
    assert_eq!(file[first + 96..first + 128], signers[1]);
    let mut turned = file.clone();
    turned[first..first + 192].rotate_left(96);
    assert_eq!(field(check(&turned)), "signatures");
}

#[test]
fn there_are_at_most_so_many_signatures() {
    let encoded = plain_manifest();
    let sixteen: Vec<u8> = (100..115).chain([21]).collect();
    check(&sealed_by(encoded, &sixteen)).expect("as many as there may be");
    let manifest = watm_seal::Sealed::parse(&sealed_by(plain_manifest(), &[]))
        .expect("sealed")
        .manifest()
        .encode()
        .expect("possible");
    let seventeen: Vec<u8> = (100..116).chain([21]).collect();
    let file = by_hand(&body(), &[0], &manifest, &seventeen);
    assert_eq!(field(check(&file)), "signatures");
    let refused = seal(&body(), plain_manifest(), &[], &keys(&seventeen));
    assert_eq!(field(refused), "signatures");
}

#[test]
fn lists_of_a_manifest_are_bounded() {
    let releases = |count: usize| {
        let names = (0..count).map(|number| (name(&format!("b/{number:02}")), release("1.1")));
        names.collect()
    };
    let asked = |change: fn(&mut Capabilities)| {
        let mut capabilities = Capabilities::default();
        change(&mut capabilities);
        capabilities
    };
    let sockets = asked(|asked| {
        asked.sockets = (0..17)
            .map(|number| format!("udp s{number}").parse().expect("a socket"))
            .collect();
    });
    let connect = asked(|asked| {
        asked.connect = (0..17)
            .map(|number| format!("tcp://h{number}:1").parse().expect("a pattern"))
            .collect();
    });
    let pattern = asked(|asked| {
        asked.sockets = ["udp s*".parse().expect("a socket")].into();
    });
    for (capabilities, expected) in [
        (sockets, "sockets"),
        (connect, "connect"),
        // A manifest requests each socket by itself.
        (pattern, "sockets"),
    ] {
        let manifest = Manifest {
            capabilities,
            ..plain_manifest()
        };
        assert_eq!(field(manifest.encode()), expected);
    }
    for count in [32, 33] {
        let (floors, requires) = (
            Manifest {
                floors: releases(count),
                ..plain_manifest()
            },
            Manifest {
                requires: releases(count),
                ..plain_manifest()
            },
        );
        match count {
            32 => {
                floors.encode().expect("as many as there may be");
                requires.encode().expect("as many as there may be");
            }
            _ => {
                assert_eq!(field(floors.encode()), "floors");
                assert_eq!(field(requires.encode()), "requires");
            }
        }
    }
}

#[test]
fn lists_of_a_root_are_bounded() {
    let public = |count: u8| -> BTreeSet<_> {
        (100..100 + count)
            .map(|number| key(number).public())
            .collect()
    };
    let wrong: [(&str, RootRecord); 4] = [
        (
            "keys",
            RootRecord {
                keys: public(17),
                ..record()
            },
        ),
        (
            "revoked",
            RootRecord {
                revoked: public(65),
                ..record()
            },
        ),
        ("delegations", {
            let mut many = record();
            let one = many.delegations[1].clone();
            many.delegations = (0..17)
                .map(|number| watm_seal::Delegation {
                    name: name(&format!("team-{number:02}")),
                    ..one.clone()
                })
                .collect();
            many
        }),
        ("names", {
            let mut many = record();
            many.delegations[1].names = (0..17)
                .map(|number| format!("a/{number}").parse().expect("a pattern"))
                .collect();
            many
        }),
    ];
    for (expected, record) in wrong {
        assert_eq!(field(SignedRoot::new(record)), expected);
    }
}

#[test]
fn a_chain_is_bounded_and_of_one_root() {
    let small = |record: &mut RootRecord| {
        record.delegations.clear();
        record.keys = [key(1).public()].into();
        record.threshold = 1;
    };
    let mut first = record();
    small(&mut first);
    let first = Root::trust(signed(first, &[1])).expect("trusted");
    let mut newest = first.clone();
    let mut chain = Vec::new();
    for _ in 0..33 {
        let next = signed(next(&newest, |_| ()), &[1]);
        newest = newest.advance(&next).expect("the next");
        chain.push(next);
    }
    let sealed = |chain: &[SignedRoot]| seal(&body(), plain_manifest(), chain, &keys(&[21]));
    sealed(&chain[..32]).expect("as many as there may be");
    assert_eq!(field(sealed(&chain)), "root chain");
    // The next version, of another root.
    let other = RootRecord {
        expires: record().expires + 1,
        ..first.record().clone()
    };
    let other = Root::trust(signed(other, &[1])).expect("trusted");
    let second = signed(next(&other, |_| ()), &[1]);
    let third = other.advance(&second).expect("the next");
    let third = signed(next(&third, |_| ()), &[1]);
    let mixed = [chain[0].clone(), third];
    assert_eq!(sealed(&mixed).expect_err("two roots").code(), "bad-root");
    // An old version of another root is not skipped, unlike one of its own.
    let file = seal(
        &body(),
        manifest(),
        std::slice::from_ref(other.signed()),
        &keys(&[11, 12]),
    );
    assert_eq!(code(check(&file.expect("sealed"))), "unknown-root");
}

/// Tests that a length of 2^32 is not taken for 0.
#[test]
fn lengths_do_not_wrap() {
    let bare = b"\0asm\x01\0\0\0";
    let wraps = [bare.as_slice(), b"\x01\x80\x80\x80\x80\x10"].concat();
    assert_eq!(code(check(&wraps)), "malformed");
    let name = [
        bare.as_slice(),
        b"\0\x10\x89\x80\x80\x80\x10watm.seal\x01\0",
    ]
    .concat();
    assert_eq!(code(check(&name)), "unsealed");
}

#[test]
fn a_note_is_small_and_its_root_has_not_expired() {
    let long = [b"watm/note-file/v1\0".as_slice(), &[0; 5 << 10]].concat();
    assert_eq!(
        Note::from_file(&long).expect_err("long").code(),
        "too-large"
    );
    let note = Note::new(Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release("1.6"),
        time: NOW,
    });
    let note = note.sign(&key(31)).expect("signs");
    let expires = root().record().expires;
    let nothing = State::default();
    note.verify(&root(), &nothing, expires - 1).expect("good");
    let refused = note.verify(&root(), &nothing, expires).expect_err("late");
    assert_eq!(refused.code(), "root-expired");
}

/// Tests that a module that requires another does not itself count as present.
#[test]
fn what_is_required_is_not_what_requires() {
    let file = sealed(Manifest {
        requires: [(name("wireguard"), release("1.5"))].into(),
        ..manifest()
    });
    let result = verify(&file, &root(), &State::default(), &approving(), NOW);
    assert_eq!(code(result), "requires");
}

/// Tests that a state is parsed strictly: its checksum shows damage, not its author.
#[test]
fn a_state_with_a_good_checksum_is_read_strictly() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("strict");
    std::fs::create_dir_all(&folder).expect("made");
    let path = folder.join("state");
    let read = |content: &[u8]| {
        let digest = watm_seal::Digest::of(content);
        std::fs::write(&path, [content, &digest.0].concat()).expect("written");
        StateFile::new(&path).load()
    };
    let begin = b"watm/state/v1\0".as_slice();
    let names = |count: u16| {
        let name = |number| [b"\x04\0", format!("{number:04}").as_bytes(), &[0; 4]].concat();
        let names: Vec<u8> = (0..count).flat_map(name).collect();
        [begin, &[0; 9], &count.to_le_bytes(), &names].concat()
    };
    let with_root = |signers: &[u8]| {
        let root = signed(record(), signers).to_file();
        let root = root.strip_prefix(b"watm/root-file/v1\0").expect("a root");
        [begin, &[1], root, &[0; 10]].concat()
    };
    for good in [names(0), names(1024), with_root(&[1, 2])] {
        read(&good).expect("as it is written");
    }
    for wrong in [
        [names(0), vec![0]].concat(),
        names(1025),
        with_root(&[1]),
        [&names(0)[..14], &[2], &names(0)[15..]].concat(),
    ] {
        assert!(matches!(read(&wrong), Err(StateError::Damaged { .. })));
    }
}

/// Tests that roots which no tool of the project writes are refused, whatever their signatures.
#[test]
fn an_impossible_root_is_not_read() {
    let begin = b"watm/root-file/v1\0".len();
    let unsigned = SignedRoot::new(record()).expect("possible").to_file();
    SignedRoot::from_file(&unsigned).expect("without a signature");
    let read = |change: fn(&mut Vec<u8>)| {
        let length = usize::from(u16::from_le_bytes([unsigned[begin], unsigned[begin + 1]]));
        let mut record = unsigned[begin + 2..][..length].to_vec();
        change(&mut record);
        let length = (record.len() as u16).to_le_bytes();
        SignedRoot::from_file(&[&unsigned[..begin], &length, &record, &[0]].concat())
    };
    read(|_| ()).expect("as it was");
    // The version, the threshold, and the revoked keys: see the table of the record.
    assert_eq!(field(read(|record| record[1] = 0)), "first root");
    assert_eq!(field(read(|record| record[49] = 0)), "root threshold");
    assert_eq!(field(read(|record| record[49] = 4)), "root threshold");
    let revoked = read(|record| {
        record.pop();
        record.push(1);
        record.extend(key(11).public().as_bytes());
    });
    assert_eq!(field(revoked), "team-a keys");
    match read(|record| record.push(0)) {
        Err(Refused::Malformed { field, reason }) => {
            assert_eq!(
                (field.as_str(), reason.as_str()),
                ("root record", "1 unexpected bytes at the end")
            );
        }
        other => panic!("{other:?}"),
    }
}
