//! Session tickets: sessions that clients keep, encrypted for all servers that share a secret. Used
//! by `transport`.

use std::fmt;
use std::sync::{Arc, Mutex};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;

use crate::clients::Gate;
use crate::ticketed;

/// The bytes of a generated secret.
pub const SECRET: usize = 32;

/// The bytes at the beginning of a ticket: the number of its key, and the nonce.
const HEAD: usize = 8 + NONCE_LEN;

/// The context of the key derivation.
const SALT: &[u8] = b"watm-tls session tickets v1";

/// Encrypts tickets, with one key for each period of time. Tickets of the periods before and after
/// are decrypted too, because clocks differ.
///
/// A ticket is declined if its client would be refused now: its certificate has expired or been
/// revoked, or the rules have changed. The client then has a full handshake, in which it can
/// present its current certificate.
pub struct Tickets {
    secret: Prk,
    /// The length of a period in seconds.
    period: u64,
    /// The rules for clients. `None`: they present no certificates.
    gate: Option<Arc<Gate>>,
    /// The current keys by number. Workers on other cores have their own instances.
    keys: Mutex<Vec<(u64, LessSafeKey)>>,
    now: fn() -> u64,
}

impl Tickets {
    /// Makes a ticketer. `hours` is not 0.
    pub fn new(secret: &[u8], hours: u32, gate: Option<Arc<Gate>>) -> Tickets {
        Tickets {
            secret: Salt::new(HKDF_SHA256, SALT).extract(secret),
            period: u64::from(hours.max(1)) * 3600,
            gate,
            keys: Mutex::new(Vec::new()),
            now: || UnixTime::now().as_secs(),
        }
    }

    /// Returns the session in a ticket, without judging its client.
    fn open(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let (head, text) = cipher.split_first_chunk::<HEAD>()?;
        let (number, nonce) = head.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        if number.abs_diff((self.now)() / self.period) > 1 {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        self.with(number, |key| {
            let plain = key.open_in_place(nonce, Aad::from(head), &mut text).ok()?;
            Some(plain.to_vec())
        })
    }

    /// Returns true if the client of a session would be admitted now.
    fn admits(&self, session: &[u8]) -> bool {
        let Some(shown) = ticketed::client_certificates(session) else {
            return false;
        };
        match &self.gate {
            Some(gate) => gate.judge(Some(&shown), UnixTime::now()).is_ok(),
            // Without rules, no certificate is trusted any more.
            None => shown.is_empty(),
        }
    }

    /// Calls `act` with the key of a period. `None` if that is impossible.
    fn with<R>(&self, number: u64, act: impl FnOnce(&LessSafeKey) -> Option<R>) -> Option<R> {
        let mut keys = self.keys.lock().ok()?;
        if !keys.iter().any(|(known, _)| *known == number) {
            let key = self.key(number)?;
            let current = (self.now)() / self.period;
            keys.retain(|(known, _)| known.abs_diff(current) <= 1);
            keys.push((number, key));
        }
        let (_, key) = keys.iter().find(|(known, _)| *known == number)?;
        act(key)
    }

    fn key(&self, number: u64) -> Option<LessSafeKey> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                CHACHA20_POLY1305.key_len()
            }
        }
        let mut bytes = [0; 32];
        let info = number.to_be_bytes();
        self.secret
            .expand(&[&info], Length)
            .and_then(|key| key.fill(&mut bytes))
            .ok()?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok()?;
        Some(LessSafeKey::new(key))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // A ticket made at the end of a period lives for one more.
        u32::try_from(self.period).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let number = (self.now)() / self.period;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut text = plain.to_vec();
        let head = [&number.to_be_bytes()[..], &nonce].concat();
        self.with(number, |key| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_append_tag(nonce, Aad::from(&head), &mut text)
                .ok()
        })?;
        Some([head, text].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher).filter(|session| self.admits(session))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(1_000_000) };
    }

    fn tickets(secret: &[u8]) -> Tickets {
        let mut tickets = Tickets::new(secret, 1, None);
        tickets.now = || NOW.get();
        tickets
    }

    #[test]
    fn whoever_has_the_secret_reads_a_ticket() {
        let ticket = tickets(b"one").encrypt(b"session").unwrap();
        assert_eq!(tickets(b"one").open(&ticket).unwrap(), b"session");
        assert_eq!(tickets(b"two").open(&ticket), None);
    }

    #[test]
    fn a_ticket_is_read_for_one_more_period() {
        let server = tickets(b"one");
        NOW.set(3600 * 10);
        let ticket = server.encrypt(b"session").unwrap();
        NOW.set(3600 * 12 - 1);
        assert!(server.open(&ticket).is_some());
        NOW.set(3600 * 12);
        assert_eq!(server.open(&ticket), None);
        NOW.set(3600 * 9);
        assert!(server.open(&ticket).is_some());
    }

    #[test]
    fn no_other_bytes_are_a_ticket() {
        let server = tickets(b"one");
        let ticket = server.encrypt(b"session").unwrap();
        for length in 0..ticket.len() {
            assert_eq!(server.open(&ticket[..length]), None);
        }
        for at in 0..ticket.len() * 8 {
            let mut other = ticket.clone();
            other[at / 8] ^= 1 << (at % 8);
            assert_eq!(server.open(&other), None, "bit {at}");
        }
    }

    #[test]
    fn old_keys_are_forgotten() {
        let server = tickets(b"one");
        for period in 0..100 {
            NOW.set(3600 * period);
            server.encrypt(b"session").unwrap();
        }
        assert!(server.keys.lock().unwrap().len() <= 3);
    }
}
