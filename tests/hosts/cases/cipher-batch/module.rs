//! Seals and opens several texts of one buffer, and compares them with texts that are sealed alone.
#![cfg(not(feature = "interface-0-1"))]

use watm_host_kit::crypto::{AeadAlgorithm, AeadKey, Place};
use watm_host_kit::{Case, ConfigError, ErrorCode, StartOptions, case, check, done, refused, same};

const TAG: usize = 16;
const TEXTS: [&[u8]; 3] = [b"one", b"", b"a longer text than the others"];
/// The bytes between the texts.
const HEADER: &[u8] = b"head";

struct CipherBatch;

/// The nonce of a text.
fn nonce(number: usize) -> [u8; 12] {
    [number as u8; 12]
}

impl Case for CipherBatch {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let key = AeadKey::create(AeadAlgorithm::Chacha20Poly1305, &[7; 32]).map_err(refused)?;
        let (mut plain, mut sealed, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (number, text) in TEXTS.iter().enumerate() {
            let one = key.seal(&nonce(number), b"data", text).map_err(refused)?;
            plain.extend([HEADER, text, &[0; TAG]].concat());
            sealed.extend([HEADER, &one].concat());
            places.push(Place {
                begin: (sealed.len() - one.len()) as u32,
                len: one.len() as u32,
            });
        }
        let nonces = [nonce(0), nonce(1), nonce(2)].concat();
        let found = key.seal_all(&nonces, b"data", &plain, &places);
        same("the sealed buffer", &found, &Ok(sealed.clone()));

        // The second text is a forgery.
        sealed[places[1].begin as usize] ^= 1;
        let opened = key
            .open_all(&nonces, b"data", &sealed, &places)
            .map_err(refused)?;
        same(
            "the authentic texts",
            &opened.authentic,
            &vec![true, false, true],
        );
        same("the length", &opened.buffer.len(), &plain.len());
        for number in [0, 2] {
            let begin = places[number].begin as usize;
            let (head, text) = (begin - HEADER.len(), TEXTS[number]);
            let found = opened.buffer.get(head..begin + text.len());
            same("a text", &found, &Some(&*[HEADER, text].concat()));
        }
        let all = |nonces: &[u8], places: &[Place]| {
            let sealed = key.seal_all(nonces, b"", &plain, places).err();
            let opened = key.open_all(nonces, b"", &plain, places).err();
            sealed == opened && sealed == Some(ErrorCode::InvalidArgument)
        };
        let (first, last) = (places[0], places[2]);
        let begin = last.begin;
        check(all(&nonces[1..], &places), "a nonce that is too short");
        check(all(&nonces, &places[1..]), "a nonce too many");
        check(
            all(&nonces[..12], &[Place { len: 15, ..first }]),
            "no room for a tag",
        );
        check(
            all(
                &nonces[..12],
                &[Place {
                    begin: begin + 1,
                    ..last
                }],
            ),
            "a place outside",
        );
        check(
            all(
                &nonces[..12],
                &[Place {
                    begin: u32::MAX,
                    len: u32::MAX,
                }],
            ),
            "far outside",
        );
        check(
            all(&nonces[..24], &[last, first]),
            "places that are not in order",
        );
        check(all(&nonces[..24], &[first, first]), "places that overlap");
        done();
        Ok(CipherBatch)
    }
}

case!(CipherBatch);
