//! Lookups of host names: `wit/names.wit`. Transports get them from
//! [`Host::lookup`](crate::Host::lookup).

use std::net::SocketAddr;

use crate::ErrorCode;

/// A name that the host looks up. Dropping it forgets the answer.
pub trait Lookup {
    /// The addresses that the host allows, in the order in which to try them; never an empty list.
    /// `None` until there is an answer, which the token announces.
    ///
    /// Fails with [`ErrorCode::NameUnresolvable`] if there is no address, with
    /// [`ErrorCode::AccessDenied`] if none is allowed, and with [`ErrorCode::Timeout`].
    fn addresses(&mut self) -> Result<Option<Vec<SocketAddr>>, ErrorCode>;
}
