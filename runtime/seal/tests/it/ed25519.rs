//! Attack 19: signatures that a lenient verifier accepts; and attack 20: signatures for something
//! else.

use curve25519_dalek::scalar::Scalar;
use ed25519_dalek::{Signer, SigningKey, Verifier, VerifyingKey};
use sha2::{Digest as _, Sha512};
use watm_seal::{Announcement, Note, PublicKey, Sealed, SignedRoot};

use crate::support::*;

/// The points of small order in every encoding that decodes to one.
const SMALL_ORDER: [&str; 14] = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
];

/// The order of the group.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// Returns a file with this signature in place of its only one.
fn with_signature(signature: &[u8; 64]) -> Vec<u8> {
    let mut file = sealed_by(plain_manifest(), &[21]);
    let at = signature_at(&file);
    file[at..at + 64].copy_from_slice(signature);
    file
}

fn signature_at(file: &[u8]) -> usize {
    let key = *key(21).public().as_bytes();
    let at = file.windows(32).position(|window| window == key);
    at.expect("the signer's key") + 32
}

/// Returns the signed message and its valid signature.
fn message_and_signature() -> (Vec<u8>, [u8; 64]) {
    let file = sealed_by(plain_manifest(), &[21]);
    let manifest = Sealed::parse(&file).expect("sealed").manifest().encode();
    let message = [b"watm/seal/v1\0", manifest.expect("possible").as_slice()].concat();
    let at = signature_at(&file);
    let signature = file[at..at + 64].try_into().expect("64 bytes");
    (message, signature)
}

#[test]
fn keys_of_small_order_are_no_keys() {
    for text in SMALL_ORDER {
        assert!(text.parse::<PublicKey>().is_err(), "{text}");
        // With such a key, a signature of nothing is valid for a lenient verifier.
        let bytes: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal"))
            .collect();
        let mut file = sealed_by(plain_manifest(), &[21]);
        let at = signature_at(&file);
        file[at - 32..at].copy_from_slice(&bytes);
        file[at] = 1;
        file[at + 1..at + 64].fill(0);
        assert_eq!(code(check(&file)), "malformed");
    }
}

#[test]
fn keys_have_one_encoding() {
    // y = p + i for all i that fit, with either sign.
    for i in 0..19 {
        for sign in [0x7f, 0xff] {
            let mut bytes = [0xff; 32];
            bytes[0] = 0xed + i;
            bytes[31] = sign;
            assert!(PublicKey::from_bytes(bytes).is_err());
        }
    }
}

#[test]
fn the_second_half_of_a_signature_is_below_the_order() {
    let (_, mut signature) = message_and_signature();
    assert_eq!(code(check(&with_signature(&signature))), "accepted");
    let mut carry = 0;
    for (byte, more) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(more) + carry;
        *byte = sum as u8;
        carry = sum >> 8;
    }
    assert_eq!(carry, 0);
    assert_eq!(code(check(&with_signature(&signature))), "bad-signature");
}

/// Tests a signature whose signer left the nonce out, which satisfies the plain equation.
#[test]
fn the_first_half_of_a_signature_is_not_of_small_order() {
    let (message, _) = message_and_signature();
    let signing = SigningKey::from_bytes(&[21; 32]);
    let public = signing.verifying_key();
    let mut identity = [0; 32];
    identity[0] = 1;
    let hash = Sha512::new()
        .chain_update(identity)
        .chain_update(public.as_bytes())
        .chain_update(&message)
        .finalize();
    let k = Scalar::from_bytes_mod_order_wide(&hash.into());
    let s = k * signing.to_scalar();
    let signature: [u8; 64] = [identity, s.to_bytes()].concat().try_into().expect("64");
    let lenient = ed25519_dalek::Signature::from_bytes(&signature);
    public.verify(&message, &lenient).expect("satisfies it");
    assert_eq!(code(check(&with_signature(&signature))), "bad-signature");
}

/// Attack 20: a signature by the same key for another protocol or format.
#[test]
fn a_signature_for_something_else_is_refused() {
    let (message, good) = message_and_signature();
    let signing = SigningKey::from_bytes(&[21; 32]);
    assert_eq!(signing.sign(&message).to_bytes(), good);
    let manifest = &message[b"watm/seal/v1\0".len()..];
    for other in [
        "",
        "watm/seal/v2\0",
        "watm/seal/v1",
        "watm/root/v1\0",
        "watm/freshness/v1\0",
    ] {
        let message = [other.as_bytes(), manifest].concat();
        let signature = signing.sign(&message).to_bytes();
        assert_eq!(code(check(&with_signature(&signature))), "bad-signature");
    }
    let hashed = signing.sign(&Sha512::digest(&message)).to_bytes();
    assert_eq!(code(check(&with_signature(&hashed))), "bad-signature");
}

/// Attack 20: root records and notes are signed under their own domains.
#[test]
fn each_kind_is_signed_for_itself() {
    let note = Note::new(Announcement {
        root: root().id(),
        name: name("wireguard"),
        release: release("1.5"),
        time: NOW,
    });
    let verifying = VerifyingKey::from_bytes(key(31).public().as_bytes()).expect("a key");
    let file = note.sign(&key(31)).expect("signs").to_file();
    let content = &file[b"watm/note-file/v1\0".len() + 2..file.len() - 97];
    let signature = ed25519_dalek::Signature::from_slice(&file[file.len() - 64..]);
    let signature = signature.expect("64 bytes");
    let over = |domain: &str| {
        let message = [domain.as_bytes(), content].concat();
        verifying.verify_strict(&message, &signature).is_ok()
    };
    assert!(over("watm/freshness/v1\0"));
    assert!(!over("watm/seal/v1\0"));
    assert!(!over("watm/root/v1\0"));
    // One kind of file is not parsed as another.
    let root_file = root().signed().to_file();
    let record = &root_file[b"watm/root-file/v1\0".len() + 2..root_file.len() - 2 * 96 - 1];
    let (signer, signature) = root_file[root_file.len() - 96..].split_at(32);
    let signer = VerifyingKey::from_bytes(signer.try_into().expect("32 bytes")).expect("a key");
    let signature = ed25519_dalek::Signature::from_slice(signature).expect("64 bytes");
    let over = |domain: &str| {
        let message = [domain.as_bytes(), record].concat();
        signer.verify_strict(&message, &signature).is_ok()
    };
    assert!(over("watm/root/v1\0"));
    assert!(!over("watm/seal/v1\0"));
    assert!(!over("watm/freshness/v1\0"));
    assert!(Note::from_file(&root_file).is_err());
    assert!(SignedRoot::from_file(&file).is_err());
}
