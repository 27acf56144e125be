//! Errors of clients, for the logs of the programs that serve them.

use std::io;

use thiserror::Error;

use crate::{Destination, Refusal};

/// The reason why a client was not served, for a log. The client has been told already, as far as
/// its protocol allows.
#[derive(Debug, Error)]
pub enum Error {
    /// The client broke the protocol.
    #[error("invalid request from a client: {0}")]
    Client(&'static str),
    /// The client did not send its request in time.
    #[error("a client did not send its request in time")]
    Slow,
    /// The client did not authenticate.
    #[error("proxy authentication failed")]
    Unknown,
    /// The client requested something that this proxy does not support.
    #[error("unsupported request from a client: {0}")]
    Unsupported(&'static str),
    /// The destination could not be reached.
    #[error("{to}: {why}")]
    Dial {
        /// The destination.
        to: Destination,
        /// The reason.
        why: Refusal,
    },
    /// The connection failed later, or the client disconnected.
    #[error("{0}: {1}")]
    Broken(&'static str, io::Error),
}

impl Error {
    pub(crate) fn client(error: io::Error) -> Error {
        Error::Broken("client", error)
    }
}
