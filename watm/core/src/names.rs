use std::net::SocketAddr;

use crate::ErrorCode;

/// A name that the host looks up. Dropping it forgets the answer.
pub trait Lookup {
    /// The addresses that the host allows, in the order in which to try them; never none of
    /// them. `None` until there is an answer, which the token tells.
    ///
    /// Fails with [`ErrorCode::NameUnresolvable`] if there is no address, with
    /// [`ErrorCode::AccessDenied`] if none is allowed, and with [`ErrorCode::Timeout`].
    fn addresses(&mut self) -> Result<Option<Vec<SocketAddr>>, ErrorCode>;
}
