//! The messages that TLS handshakes sign. A module that could have any message signed could
//! impersonate the key's owner elsewhere. `component::signing` checks every message.

/// The longest message, in bytes: a client's, in TLS 1.2, is its whole handshake, of which the
/// server's chain is the largest part.
const LONGEST: usize = 128 << 10;

/// Returns true for a message that one side of a handshake signs:
///
/// - in TLS 1.3, 64 spaces, a text that names the side, and a hash (RFC 8446, section 4.4.3);
/// - in TLS 1.2, for a server, 64 random bytes and a public key of the curves P-256, P-384 or X25519
///   (RFC 8422, section 5.4), whole and of the length that the curve has;
/// - in TLS 1.2, for a client, all messages so far (RFC 5246, section 7.4.8).
pub fn is_of_handshake(message: &[u8]) -> bool {
    message.len() <= LONGEST
        && (is_verify_13(message) || is_key_exchange_12(message) || is_transcript_12(message))
}

fn is_verify_13(message: &[u8]) -> bool {
    let Some(rest) = message.strip_prefix(&[b' '; 64]) else {
        return false;
    };
    let sides: [&[u8]; 2] = [
        b"TLS 1.3, server CertificateVerify\0",
        b"TLS 1.3, client CertificateVerify\0",
    ];
    let mut hashes = sides.iter().filter_map(|side| rest.strip_prefix(*side));
    hashes.any(|hash| matches!(hash.len(), 32 | 48))
}

/// Returns true for the two randoms, `named_curve`, the curve, and the length of the point before
/// the point. A point of a NIST curve is uncompressed. Only what a key exchange chooses at random
/// can vary.
fn is_key_exchange_12(message: &[u8]) -> bool {
    const SECP256R1: [u8; 2] = [0, 23];
    const SECP384R1: [u8; 2] = [0, 24];
    const X25519: [u8; 2] = [0, 29];
    const UNCOMPRESSED: u8 = 4;
    let Some([3, curve @ ..]) = message.get(64..) else {
        return false;
    };
    match curve {
        [a, b, 65, UNCOMPRESSED, point @ ..] => [*a, *b] == SECP256R1 && point.len() == 64,
        [a, b, 97, UNCOMPRESSED, point @ ..] => [*a, *b] == SECP384R1 && point.len() == 96,
        [a, b, 32, point @ ..] => [*a, *b] == X25519 && point.len() == 32,
        _ => false,
    }
}

/// Returns true for whole messages, from the hello of a TLS 1.2 client to its key exchange.
fn is_transcript_12(message: &[u8]) -> bool {
    const CLIENT_HELLO: u8 = 1;
    const CLIENT_KEY_EXCHANGE: u8 = 16;
    let mut rest = message;
    let mut last = None;
    while let [kind, a, b, c, body @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some((body, after)) = body.split_at_checked(length) else {
            return false;
        };
        if last.is_none() && (*kind != CLIENT_HELLO || !body.starts_with(&[3, 3])) {
            return false;
        }
        last = Some(*kind);
        rest = after;
    }
    rest.is_empty() && last == Some(CLIENT_KEY_EXCHANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(side: &str, hash: usize) -> Vec<u8> {
        let text = format!("TLS 1.3, {side} CertificateVerify\0");
        [&[b' '; 64][..], text.as_bytes(), &vec![7; hash]].concat()
    }

    #[test]
    fn what_handshakes_sign_is_known() {
        for (side, hash, is) in [
            ("server", 32, true),
            ("client", 48, true),
            ("server", 33, false),
            ("server", 0, false),
            ("nobody", 32, false),
        ] {
            assert_eq!(is_of_handshake(&verify(side, hash)), is, "{side} {hash}");
        }
        let exchange = |curve: [u8; 2], length: u8, first: u8, rest: usize| {
            let head = [3, curve[0], curve[1], length, first];
            [&[9; 64][..], &head, &vec![5; rest]].concat()
        };
        let (p256, p384, x25519) = ([0, 23], [0, 24], [0, 29]);
        for (curve, length, first, rest, is) in [
            (x25519, 32, 5, 31, true),
            (p256, 65, 4, 64, true),
            (p384, 97, 4, 96, true),
            (x25519, 32, 5, 32, false),
            (x25519, 33, 5, 31, false),
            (x25519, 65, 4, 64, false),
            (p256, 32, 5, 31, false),
            // A compressed point, and invalid points.
            (p256, 33, 2, 32, false),
            (p256, 65, 5, 64, false),
            (p384, 97, 2, 96, false),
            (p384, 65, 4, 64, false),
            // P-521, X448, and an unknown curve.
            ([0, 25], 133, 4, 132, false),
            ([0, 30], 56, 5, 55, false),
            ([9, 9], 255, 5, 254, false),
        ] {
            let message = exchange(curve, length, first, rest);
            assert_eq!(is_of_handshake(&message), is, "{curve:?} {length} {rest}");
        }
        assert!(!is_of_handshake(&exchange(p256, 65, 4, 64)[..70]));
        let said = |kind: u8, body: &[u8]| [&[kind, 0, 0, body.len() as u8], body].concat();
        let hello = said(1, &[3, 3, 1]);
        let whole = [hello.clone(), said(2, &[3, 3]), said(16, &[1, 2])].concat();
        assert!(is_of_handshake(&whole));
        assert!(!is_of_handshake(&whole[..whole.len() - 1]));
        assert!(!is_of_handshake(&hello));
        assert!(!is_of_handshake(
            &[said(2, &[3, 3]), said(16, &[1])].concat()
        ));
        assert!(!is_of_handshake(
            &[said(1, &[2, 2]), said(16, &[1])].concat()
        ));
    }

    #[test]
    fn anything_else_is_not() {
        for message in [&b""[..], b"a document", &[0; 64], &[3; 67]] {
            assert!(!is_of_handshake(message), "{message:?}");
        }
        let long = [
            vec![1, 1, 0xff, 0xff, 3, 3],
            vec![0; 0x1fffd],
            vec![16, 0, 0, 0],
        ]
        .concat();
        assert!(long.len() > LONGEST && is_transcript_12(&long) && !is_of_handshake(&long));
    }
}
