//! Clients that go to the decoy, and the bytes received from them until then. Used by `accepted`.

use watm_stream::Buffer;

/// The type of handshake messages, with which every TLS client begins (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 0x16;

/// The decoy state of a connection.
#[derive(Debug, Default)]
pub enum Decoy {
    /// Not a decoy connection, now or later.
    #[default]
    Never,
    /// Undecided: these bytes were received, and nothing was answered.
    Perhaps(Vec<u8>),
    /// Raw bytes are passed on, for this reason.
    Raw(String),
    /// Decrypted data is passed on, for this reason.
    Decrypted(String),
}

impl Decoy {
    /// Remember the bytes before they are processed. Returns true if they are not TLS.
    pub fn hear(&mut self, from: &Buffer) -> bool {
        let Decoy::Perhaps(said) = self else {
            return false;
        };
        said.extend_from_slice(from.bytes());
        said.first().is_some_and(|first| *first != HANDSHAKE)
    }

    /// Record that something is answered.
    pub fn answer(&mut self) {
        if matches!(self, Decoy::Perhaps(_)) {
            *self = Decoy::Never;
        }
    }

    /// Make it a decoy connection, if undecided, and return true. `application` then gets all
    /// received bytes.
    pub fn reveal(&mut self, reason: impl FnOnce() -> String, application: &mut Buffer) -> bool {
        let Decoy::Perhaps(said) = self else {
            return false;
        };
        application.clear();
        application.extend(said);
        *self = Decoy::Raw(reason());
        true
    }

    pub fn is_raw(&self) -> bool {
        matches!(self, Decoy::Raw(_))
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Decoy::Raw(reason) | Decoy::Decrypted(reason) => Some(reason),
            Decoy::Never | Decoy::Perhaps(_) => None,
        }
    }
}
