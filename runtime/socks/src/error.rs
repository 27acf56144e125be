use std::io;

use thiserror::Error;

use crate::{Destination, Refusal};

/// What a client was not served for. For a log: it was told already, as far as its protocol can.
#[derive(Debug, Error)]
pub enum Error {
    /// The client did not keep to the protocol.
    #[error("a client said {0}")]
    Client(&'static str),
    /// The client was too slow to say what it wants.
    #[error("a client did not say in time what it wants")]
    Slow,
    /// The client is nobody that is known.
    #[error("a client gave no user and password that are known")]
    Unknown,
    /// What the client wants is not to be had from a proxy like this one.
    #[error("a client wants {0}")]
    Unsupported(&'static str),
    /// The destination cannot be had.
    #[error("{to}: {why}")]
    Dial {
        /// Where to.
        to: Destination,
        /// Why not.
        why: Refusal,
    },
    /// The connection failed later, or the client went away.
    #[error("{0}: {1}")]
    Broken(&'static str, io::Error),
}

impl Error {
    pub(crate) fn client(error: io::Error) -> Error {
        Error::Broken("client", error)
    }
}
