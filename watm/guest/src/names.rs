//! Lookups of names, on the import `names`.

use std::net::SocketAddr;

use watm_core::{ErrorCode, Lookup, Token};

use crate::bindings::watm::transport::names;
use crate::convert::{to_error, to_socket_address};

/// Begins the lookup of a host.
pub fn lookup(name: &str, port: u16, token: Token) -> Result<Box<dyn Lookup>, ErrorCode> {
    let lookup = names::Lookup::start(name, port, token).map_err(to_error)?;
    Ok(Box::new(Asked(lookup)))
}

struct Asked(names::Lookup);

impl Lookup for Asked {
    fn addresses(&mut self) -> Result<Option<Vec<SocketAddr>>, ErrorCode> {
        let found = self.0.addresses().map_err(to_error)?;
        Ok(found.map(|found| found.into_iter().map(to_socket_address).collect()))
    }
}
