//! Random bytes: parsing always ends, and accepted values have one encoding.

use watm_seal::{
    Approval, KeyFile, Manifest, Name, Note, Policy, Release, Sealed, SignedRoot, State, World,
    verify,
};

use crate::support::*;

/// Makes a manifest with every part, in random sizes.
fn random_manifest(random: &mut Random) -> Manifest {
    let mut manifest = manifest();
    let any_name = |random: &mut Random| -> Name {
        let len = 1 + random.below(60);
        let text: String = (0..len)
            .map(|_| char::from(b"abcxyz019"[random.below(9)]))
            .collect();
        name(&text)
    };
    let any_release = |random: &mut Random| Release {
        epoch: random.next() as u32,
        sequence: random.next(),
    };
    manifest.name = any_name(random);
    manifest.world = match random.below(3) {
        0 => World::WaterV0,
        1 => World::WaterV1,
        _ => manifest.world,
    };
    manifest.roles = watm_seal::ModuleRole::ALL
        .into_iter()
        .filter(|_| random.below(2) == 0)
        .chain([watm_seal::ModuleRole::Relay])
        .collect();
    manifest.release = any_release(random);
    manifest.version = "v".repeat(random.below(65));
    manifest.not_before = random.next() >> 1;
    manifest.expires = manifest.not_before + 1 + (random.next() >> 2);
    manifest.channel = any_name(random);
    manifest.audience = (random.below(2) == 0).then(|| any_name(random));
    manifest.config_schema = random.next() as u32;
    manifest.capabilities.memory_bytes = random.next();
    manifest.capabilities.flows = random.next() as u32;
    for _ in 0..random.below(10) {
        let pattern = format!(
            "udp://h{}.example.com:{}",
            random.below(99),
            random.below(65536)
        );
        manifest
            .capabilities
            .connect
            .insert(pattern.parse().expect("a pattern"));
    }
    for _ in 0..random.below(30) {
        let other = format!("0{}", any_name(random));
        if other.len() <= 64 {
            manifest.floors.insert(name(&other), any_release(random));
        }
        manifest
            .requires
            .insert(any_name(random), any_release(random));
    }
    manifest.floors.remove(&manifest.name);
    manifest.source_commit = "c".repeat(random.below(65));
    manifest.toolchain = "t".repeat(random.below(129));
    manifest
}

/// Changes, removes or inserts some bytes.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, random.next() as u8),
            _ => {
                let to = at + random.below(bytes.len() - at).min(40);
                let part = bytes[at..to].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

#[test]
fn a_manifest_is_what_was_written() {
    let mut random = Random(1);
    for _ in 0..2_000 {
        let manifest = random_manifest(&mut random);
        let bytes = manifest.encode().expect("within its bounds");
        assert_eq!(Manifest::parse(&bytes).expect("as written"), manifest);
    }
}

/// Attack 19: one manifest, one encoding.
#[test]
fn a_manifest_that_is_read_is_written_the_same() {
    let mut random = Random(2);
    let mut accepted = 0;
    for _ in 0..15_000 {
        let mut bytes = random_manifest(&mut random).encode().expect("possible");
        damage(&mut random, &mut bytes);
        if let Ok(manifest) = Manifest::parse(&bytes) {
            assert_eq!(manifest.encode().expect("possible"), bytes);
            accepted += 1;
        }
    }
    // Numbers and texts may differ validly.
    assert!(accepted > 1_000, "{accepted}");
}

#[test]
fn no_file_makes_it_panic_or_is_accepted() {
    let rotation = signed(next(&root(), |_| ()), &[1, 2]);
    let file = watm_seal::seal(&body(), manifest(), &[rotation], &keys(&[11, 12]));
    let file = file.expect("sealed");
    let policy = Policy {
        approval: Approval::Given,
        ..Policy::default()
    };
    let mut random = Random(3);
    for _ in 0..10_000 {
        let mut changed = file.clone();
        damage(&mut random, &mut changed);
        if changed == file {
            continue;
        }
        let result = verify(&changed, &root(), &State::default(), &policy, NOW);
        let refused = result.expect_err("is another file");
        assert!(!refused.to_string().contains('\n'));
    }
}

#[test]
fn no_bytes_make_a_parser_panic() {
    let note = [b"watm/note-file/v1\0".as_slice(), &[60, 0, 1]].concat();
    let seals = [
        b"\0asm\x01\0\0\0\0".as_slice(),
        &[0xff, 1],
        b"\x09watm.seal\x01",
    ]
    .concat();
    let starts: [&[u8]; 5] = [
        b"",
        b"\0asm\x01\0\0\0",
        &seals,
        b"watm/root-file/v1\0",
        &note,
    ];
    let mut random = Random(4);
    for _ in 0..50_000 {
        let mut bytes = starts[random.below(starts.len())].to_vec();
        for _ in 0..random.below(300) {
            bytes.push(random.next() as u8 & [0xff, 3][random.below(2)]);
        }
        assert!(Sealed::parse(&bytes).is_err());
        assert!(SignedRoot::from_file(&bytes).is_err());
        assert!(Note::from_file(&bytes).is_err());
        assert!(Manifest::parse(&bytes).is_err());
        assert!(KeyFile::parse(&String::from_utf8_lossy(&bytes)).is_err());
    }
}

#[test]
fn the_largest_manifest_fits_and_a_larger_seal_does_not() {
    let mut large = manifest();
    let long = |number: usize| name(&format!("a/{number:062}"));
    for number in 0..32 {
        large.floors.insert(long(number), release("1.0"));
        large.requires.insert(long(number), release("1.0"));
    }
    large.capabilities.connect = (0..16)
        .map(|number| format!("tcp://{number:0238}.example.com:443"))
        .map(|text| text.parse().expect("a pattern"))
        .collect();
    let file = sealed_by(large.clone(), &[11, 12, 13]);
    Sealed::parse(&file).expect("within its bounds");
    let chain = (2..30).scan(root(), |root, _| {
        let signed = signed(next(root, |_| ()), &[1, 2, 3]);
        *root = root.advance(&signed).expect("the next");
        Some(signed)
    });
    let chain: Vec<SignedRoot> = chain.collect();
    // A file that was sealed can be read.
    let mut refusals = 0;
    for length in 0..=chain.len() {
        match watm_seal::seal(&body(), large.clone(), &chain[..length], &keys(&[11, 12])) {
            Ok(file) => drop(Sealed::parse(&file).expect("within its bounds")),
            Err(refused) => {
                assert_eq!(refused.code(), "too-large");
                refusals += 1;
            }
        }
    }
    assert!(0 < refusals && refusals < chain.len());
}
