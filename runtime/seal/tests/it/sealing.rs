//! Sealing, adding signatures, and the documented encoding.

use watm_seal::{Manifest, Sealed, add_signature, seal};

use crate::support::*;

#[test]
fn a_sealed_module_is_accepted_and_says_why() {
    let file = sealed(manifest());
    let verified = check(&file).expect("good");
    assert_eq!(verified.module(), file);
    assert_eq!(verified.warnings(), []);
    let proof = verified.proof().expect("sealed");
    assert_eq!(proof.delegation, name("team-a"));
    assert_eq!(proof.signers.len(), 2);
    assert_eq!(proof.manifest.body_length, body().len() as u64);
    assert_eq!(proof.manifest.version, "0.1.5");
}

#[test]
fn sealing_leaves_the_module_as_it_was() {
    let file = sealed(manifest());
    assert_eq!(Sealed::parse(&file).expect("sealed").body(), body());
    // The seal is one more custom section, the first, for other runtimes.
    assert_eq!(file[..8], body()[..8]);
    assert!(file.ends_with(&body()[8..]));
    assert_eq!(file[8], 0);
}

#[test]
fn a_component_can_be_sealed() {
    let body = wat::parse_str("(component (core module (func)))").expect("valid text");
    let file = seal(&body, manifest(), &[], &keys(&[11, 12])).expect("sealed");
    check(&file).expect("good");
    assert_eq!(Sealed::parse(&file).expect("sealed").body(), body);
}

#[test]
fn what_is_sealed_is_not_sealed_again() {
    let file = sealed(manifest());
    let refused = seal(&file, manifest(), &[], &keys(&[11])).expect_err("sealed already");
    assert_eq!(refused.code(), "misplaced-seal");
    // Sealing works on the body without the seal.
    let body = Sealed::parse(&file).expect("sealed").body();
    let newer = Manifest {
        release: release("1.6"),
        ..manifest()
    };
    let again = seal(&body, newer, &[], &keys(&[11, 12])).expect("sealed");
    let verified = check(&again).expect("good");
    let proof = verified.proof().expect("sealed");
    assert_eq!(proof.manifest.release, release("1.6"));
}

#[test]
fn what_is_no_webassembly_is_not_sealed() {
    for body in [
        &b""[..],
        b"\0asm",
        b"\x7fELF\x01\0\0\0",
        b"\0asm\x01\0\0\0\x01\x05",
    ] {
        let refused = seal(body, manifest(), &[], &keys(&[11])).expect_err("no module");
        assert!(["not-wasm", "malformed"].contains(&refused.code()));
    }
}

#[test]
fn signers_sign_one_after_the_other_in_any_order() {
    let both = sealed(manifest());
    for (first, second) in [(11, 12), (12, 11)] {
        let file = sealed_by(manifest(), &[first]);
        assert_eq!(code(check(&file)), "threshold");
        let file = add_signature(&file, &key(second)).expect("signs");
        assert_eq!(file, both);
        // A second signature of the same key changes nothing.
        assert_eq!(add_signature(&file, &key(first)).expect("signs"), both);
    }
    let none = sealed_by(manifest(), &[]);
    assert_eq!(code(check(&none)), "threshold");
}

#[test]
fn nobody_signs_what_is_damaged() {
    let mut file = sealed_by(manifest(), &[11]);
    *file.last_mut().expect("not empty") ^= 1;
    let refused = add_signature(&file, &key(12)).expect_err("damaged");
    assert_eq!(refused.code(), "bad-hash");
}

#[test]
fn a_manifest_out_of_bounds_is_not_signed() {
    let long = "x".repeat(200);
    let wrong: [fn(&mut Manifest, &str); 6] = [
        |manifest, long| manifest.version = long.to_owned(),
        |manifest, long| manifest.toolchain = long.to_owned(),
        |manifest, _| manifest.source_commit = "with\nnew line".to_owned(),
        |manifest, _| manifest.roles.clear(),
        |manifest, _| manifest.expires = manifest.not_before,
        |manifest, _| manifest.floors = [(name("wireguard"), release("1.6"))].into(),
    ];
    for change in wrong {
        let mut manifest = manifest();
        change(&mut manifest, &long);
        let refused = seal(&body(), manifest, &[], &keys(&[11])).expect_err("out of bounds");
        assert_eq!(refused.code(), "malformed");
    }
}

#[test]
fn the_encoding_is_the_documented_one() {
    let file = sealed_by(plain_manifest(), &[21]);
    let (id, file) = (file[8], &file[9..]);
    assert_eq!(id, 0);
    // The section's length has two bytes here.
    let length = usize::from(file[0] & 0x7f) | usize::from(file[1]) << 7;
    let section = &file[2..2 + length];
    assert_eq!(section[..10], *b"\x09watm.seal");
    let seal = &section[10..];
    assert_eq!(seal[..4], [1, 1, 0, 0]);
    let length = usize::from(u16::from_le_bytes([seal[4], seal[5]]));
    let manifest = &seal[6..6 + length];
    assert_eq!(manifest[0], 1);
    assert_eq!(manifest[1..33], root().id().0);
    assert_eq!(manifest[33..40], *b"\x05\0plain");
    assert_eq!(manifest[40..64], *b"\x01\x15\0watm:transport/module");
    assert_eq!(manifest[64..71], *b"\x05\x000.1.0");
    // Roles, epoch, sequence.
    assert_eq!(manifest[71..84], [4, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let signatures = &seal[6 + length..];
    assert_eq!(signatures[0], 1);
    assert_eq!(signatures[1..33], *key(21).public().as_bytes());
    assert_eq!(signatures.len(), 1 + 32 + 64);
    // Checked with an independent implementation.
    use ed25519_dalek::{Signature, VerifyingKey};
    let other = VerifyingKey::from_bytes(key(21).public().as_bytes()).expect("a key");
    let signature = Signature::from_slice(&signatures[33..]).expect("64 bytes");
    let message = [b"watm/seal/v1\0", manifest].concat();
    other.verify_strict(&message, &signature).expect("good");
}

#[test]
fn what_is_shown_is_read() {
    for text in ["udp listen", "tcp a/b"] {
        let socket: watm_seal::Socket = text.parse().expect("a socket");
        assert_eq!(socket.to_string(), text);
    }
    for text in ["water-v0", "water-v1", "watm:transport/module@0.1.0"] {
        let world: watm_seal::World = text.parse().expect("a world");
        assert_eq!(world.to_string(), text);
    }
    for role in watm_seal::ModuleRole::ALL {
        assert_eq!(role.to_string().parse(), Ok(role));
    }
    assert!("listen".parse::<watm_seal::Socket>().is_err());
    assert!("udp".parse::<watm_seal::Socket>().is_err());
    for text in [
        "",
        "water-v2",
        "watm:transport/module",
        "watm:transport/module@1",
        "@0.1.0",
    ] {
        assert!(text.parse::<watm_seal::World>().is_err(), "{text}");
    }
    assert!("server".parse::<watm_seal::ModuleRole>().is_err());
}
