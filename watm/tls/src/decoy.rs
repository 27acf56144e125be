//! Clients that are passed on elsewhere, and what they have said until then.

use watm_stream::Buffer;

/// A handshake's message, which every TLS client begins with (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 0x16;

/// Whether a connection is one for a decoy.
#[derive(Debug, Default)]
pub enum Decoy {
    /// It will not become one.
    #[default]
    Never,
    /// It may: this is what it has said, and nothing was answered.
    Perhaps(Vec<u8>),
    /// Its bytes are passed on as they are, for this reason.
    Raw(String),
    /// What it says is passed on, for this reason.
    Decrypted(String),
}

impl Decoy {
    /// Remember what is about to be looked at. True: it is not TLS.
    pub fn hear(&mut self, from: &Buffer) -> bool {
        let Decoy::Perhaps(said) = self else {
            return false;
        };
        said.extend_from_slice(from.bytes());
        said.first().is_some_and(|first| *first != HANDSHAKE)
    }

    /// Something is answered.
    pub fn answer(&mut self) {
        if matches!(self, Decoy::Perhaps(_)) {
            *self = Decoy::Never;
        }
    }

    /// It is one, if it may be. Then `application` has all that was said.
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
