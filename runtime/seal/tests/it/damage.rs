//! Damaged files, all of which are refused.

use watm_seal::{Digest, Manifest, Policy, Refused, Sealed, SignedRoot, State, seal, verify};

use crate::support::*;

/// Returns a sealed module with a rotation of the root in it.
fn carrying() -> (Vec<u8>, SignedRoot) {
    let rotation = signed(next(&root(), |record| record.epoch = 2), &[1, 2]);
    let signers = keys(&[11, 12, 13]);
    let file = seal(
        &body(),
        manifest(),
        std::slice::from_ref(&rotation),
        &signers,
    );
    (file.expect("can be sealed"), rotation)
}

fn offset_of(file: &[u8], part: &[u8]) -> usize {
    file.windows(part.len())
        .position(|window| window == part)
        .expect("is in the file")
}

/// Attack 1, exhaustively: every bit of header, frame, root chain, manifest, signatures and body.
#[test]
fn every_flipped_bit_is_refused() {
    let (file, _) = carrying();
    check(&file).expect("good as it is");
    let encoded = Sealed::parse(&file).expect("sealed").manifest().encode();
    let manifest_at = offset_of(&file, &encoded.expect("within its bounds"));
    let rest_at = file.len() - (body().len() - 8);
    let mut changed = file.clone();
    for at in 0..file.len() {
        for bit in 0..8 {
            changed[at] ^= 1 << bit;
            let code = code(check(&changed));
            assert_ne!(code, "accepted", "byte {at} bit {bit}");
            if at < 8 || at >= rest_at {
                assert_eq!(code, "bad-hash", "byte {at} bit {bit}");
            } else if at >= manifest_at {
                // Some faults are found without a signature.
                let expected = ["bad-signature", "malformed", "unknown-root"];
                assert!(expected.contains(&code), "byte {at} bit {bit}: {code}");
            }
            changed[at] ^= 1 << bit;
        }
    }
}

/// Attack 2, exhaustively: cut anywhere.
#[test]
fn every_truncation_is_refused() {
    let (file, _) = carrying();
    for len in 0..file.len() {
        assert_ne!(code(check(&file[..len])), "accepted", "{len} bytes");
    }
}

/// Attack 2: more at the end.
#[test]
fn what_is_appended_is_refused() {
    let (file, _) = carrying();
    for more in [&b"\0"[..], b"\0\x02\x01x", b"\0asm\x01\0\0\0", &file[8..]] {
        let longer = [&file, more].concat();
        assert_eq!(code(check(&longer)), "bad-hash");
    }
}

/// Attack 2: another seal, in front or behind, and one that is not in front; also where modules
/// without a seal are accepted.
#[test]
fn a_seal_anywhere_else_is_refused() {
    let (file, _) = carrying();
    let seal_len = file.len() - body().len();
    let (header, rest) = file.split_at(8);
    let (seal, rest) = rest.split_at(seal_len);
    let other = sealed_by(plain_manifest(), &[21]);
    let other = &other[8..other.len() - (body().len() - 8)];
    let custom = b"\0\x02\x01x";
    let developing = Policy {
        allow_unsealed: true,
        ..approving()
    };
    for (parts, expected) in [
        (vec![header, seal, seal, rest], "bad-hash"),
        (vec![header, seal, other, rest], "bad-hash"),
        (vec![header, other, seal, rest], "bad-hash"),
        (vec![header, seal, rest, other], "bad-hash"),
        (vec![header, custom, seal, rest], "misplaced-seal"),
        (vec![header, rest, seal], "misplaced-seal"),
    ] {
        let file = parts.concat();
        assert_eq!(code(check(&file)), expected);
        let result = verify(&file, &root(), &State::default(), &developing, NOW);
        assert_eq!(code(result), expected);
    }
}

/// Attack 2: another tool signs a body that contains a seal.
#[test]
fn a_signed_seal_within_the_body_is_refused() {
    let inner = sealed_by(plain_manifest(), &[21]);
    let manifest = Manifest {
        body_length: inner.len() as u64,
        body_sha256: Digest::of(&inner),
        ..plain_manifest()
    };
    let manifest = manifest.encode().expect("within its bounds");
    let file = by_hand(&inner, &[0], &manifest, &[21]);
    let sealed = Sealed::parse(&file).expect("has a seal");
    assert_eq!(sealed.body(), inner);
    assert_eq!(sealed.signers().expect("are good"), [key(21).public()]);
    assert_eq!(code(check(&file)), "misplaced-seal");
}

/// Attack 3: a valid seal on another body.
#[test]
fn a_seal_of_another_module_is_refused() {
    let (file, _) = carrying();
    let seal = &file[8..8 + file.len() - body().len()];
    let other = wat::parse_str("(module)").expect("valid text");
    let file = [&other[..8], seal, &other[8..]].concat();
    assert_eq!(code(check(&file)), "bad-hash");
    // Also one of the same length.
    let mut other = body();
    *other.last_mut().expect("not empty") ^= 0x20;
    let file = [&other[..8], seal, &other[8..]].concat();
    assert_eq!(code(check(&file)), "bad-hash");
}

/// Attack 4: without its seal it is accepted in development only, with a warning.
#[test]
fn a_module_without_a_seal_needs_the_switch() {
    assert_eq!(code(check(&body())), "unsealed");
    let developing = Policy {
        allow_unsealed: true,
        ..Policy::default()
    };
    let body = body();
    let verified = verify(&body, &root(), &State::default(), &developing, NOW).expect("let in");
    assert!(verified.proof().is_none());
    assert_eq!(verified.warnings()[0].code(), "unsealed");
    assert!(verified.warnings()[0].to_string().contains("not sealed"));
    // It leaves nothing behind.
    let mut state = State::default();
    state.accept(&verified);
    assert_eq!(state, State::default());
    // A broken seal does not count as a missing one.
    let mut file = sealed(manifest());
    *file.last_mut().expect("not empty") ^= 1;
    let result = verify(&file, &root(), &State::default(), &developing, NOW);
    assert_eq!(code(result), "bad-hash");
}

/// Attack 5: a module that claims to be a component, and the reverse.
#[test]
fn the_header_is_part_of_what_is_signed() {
    let mut file = sealed(manifest());
    assert_eq!(file[4..8], [1, 0, 0, 0]);
    file[4..8].copy_from_slice(&[0x0d, 0, 1, 0]);
    assert_eq!(code(check(&file)), "bad-hash");
}

/// Attack 15, for seals: files that are too large are refused before they are parsed.
#[test]
fn sizes_are_bounded() {
    let large = vec![0; watm_seal::MAX_FILE_BYTES + 1];
    assert_eq!(code(check(&large)), "too-large");
    // One byte less is read: it is no WebAssembly.
    let most = &large[1..];
    assert!(matches!(Sealed::parse(most), Err(Refused::NotWasm)));
    // A section that claims to be a seal of 20 KiB.
    let content = [b"\x09watm.seal".as_slice(), &[1; 20 << 10]].concat();
    let length = [
        content.len() as u8 | 0x80,
        (content.len() >> 7) as u8 | 0x80,
        1,
    ];
    let file = [b"\0asm\x01\0\0\0\0", length.as_slice(), &content].concat();
    assert_eq!(code(check(&file)), "too-large");
    // Lengths that go beyond the file, and beyond all numbers.
    for length in [
        &b"\x80\x80\x80\x80\x08"[..],
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
        b"\x80\x80\x80\x80\x80\x00",
    ] {
        let file = [b"\0asm\x01\0\0\0\0", length, b"\x09watm.seal\x01"].concat();
        assert_eq!(code(check(&file)), "malformed");
    }
    // A file of a million empty sections has no seal.
    let file = [b"\0asm\x01\0\0\0".as_slice(), &b"\x01\0".repeat(1_000_000)].concat();
    assert_eq!(code(check(&file)), "unsealed");
}

/// Attack 19: a length in more bytes than it needs would be another file with the same meaning.
#[test]
fn the_frame_has_one_encoding() {
    let file = sealed(manifest());
    assert!(file[9] & 0x80 != 0 && file[10] & 0x80 == 0, "two bytes");
    let longer = [&file[..10], &[file[10] | 0x80, 0], &file[11..]].concat();
    let refused = Sealed::parse(&longer).expect_err("another encoding");
    assert!(matches!(&refused, Refused::Malformed { field, .. } if field == "seal section"));
}

/// Attack 16: the verified bytes are the compiled ones, since they are the same borrowed bytes.
#[test]
fn the_buffer_is_the_one_that_was_verified() {
    let file = sealed(manifest());
    let verified = check(&file).expect("good");
    assert!(std::ptr::eq(verified.module(), file.as_slice()));
}
