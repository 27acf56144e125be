//! The comparison of names and passwords.

/// Returns true if a client said the bytes that are known. The time taken depends on the length of what it said alone.
/// `known` must not be empty.
pub fn same(known: &[u8], said: &[u8]) -> bool {
    let mut differences = known.len() ^ said.len();
    for (index, byte) in said.iter().enumerate() {
        differences |= usize::from(byte ^ known[index % known.len()]);
    }
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_are_the_same() {
        assert!(same(b"secret", b"secret"));
        for said in [
            &b""[..],
            b"secre",
            b"secrets",
            b"secreT",
            b"Secret",
            b"secretsecret",
        ] {
            assert!(!same(b"secret", said));
        }
    }
}
