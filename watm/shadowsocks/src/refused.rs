//! The reasons for refusals. `stream`, `datagram` and `stamp` return them.

use std::fmt;

use watm_core::ErrorCode;

/// The reason why a connection or a datagram is refused. Strangers are not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A wrong tag: the message is damaged, or made with another key.
    NotAuthentic,
    /// An impossible length.
    Length,
    /// A first part of a request that arrived in pieces.
    Pieces,
    /// A message of the wrong kind.
    Kind,
    /// A request whose time is not close to now.
    Time,
    /// A replay.
    Replayed,
    /// The name of an unknown user.
    User,
    /// A malformed address.
    Address,
    /// A request with neither padding nor a payload.
    Bare,
    /// An answer to another request.
    Answer,
    /// No room for more.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotAuthentic => "a message is damaged or encrypted with another key",
            Refused::Length => "a message has an invalid length",
            Refused::Pieces => "the start of a request arrived in pieces",
            Refused::Kind => "a message has the wrong type",
            Refused::Time => "the timestamp of a message is too far off: check both clocks",
            Refused::Replayed => "a salt was reused: this is a replay",
            Refused::User => "unknown user",
            Refused::Address => "an address is missing",
            Refused::Bare => "a request has neither padding nor a payload",
            Refused::Answer => "the response belongs to another request",
            Refused::Full => "too many sessions",
        })
    }
}

impl From<Refused> for ErrorCode {
    fn from(refused: Refused) -> ErrorCode {
        ErrorCode::Other(refused.to_string())
    }
}
