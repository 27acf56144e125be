//! Readers of files and addresses that users name. Used throughout the crate.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use watm_runtime::{Destination, Error};

/// Reads a file. The error names it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

/// Parses `host:port` without resolving it.
pub(crate) fn destination(text: &str) -> Result<Destination, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

/// Parses an address to listen on. Resolves names.
pub(crate) fn listening_address(text: &str) -> Result<SocketAddr, String> {
    destination(text)?;
    let found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    let mut found = found;
    found
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
}
