//! Dialers as connectors, so that a module can be reached through another one.

use std::future::Future;
use std::io;
use std::pin::Pin;

use super::dialer::Dialer;
use crate::{Error, ErrorCode};
use crate::{Network, Target};
use watm_net::connect::{Connect, Wire};

/// Connects through its module, which looks up names itself.
impl Connect for Dialer {
    fn connect(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async move {
            let address = target.destination.to_string();
            match target.network {
                Network::Tcp => self.dial(&address).await.map(Wire::stream),
                Network::Udp => self.dial_datagrams(&address).await.map(Wire::datagrams),
            }
            .map_err(failed)
        })
    }
}

/// Returns the error with the kind that the system would use, if there is one.
fn failed(error: Error) -> io::Error {
    let kind = match &error {
        Error::Denied { .. } => io::ErrorKind::PermissionDenied,
        Error::Timeout { .. } => io::ErrorKind::TimedOut,
        Error::NoDatagrams { .. } => io::ErrorKind::Unsupported,
        Error::Connect { source, .. } => source.kind(),
        Error::Refused { code, .. } => match code {
            ErrorCode::AccessDenied => io::ErrorKind::PermissionDenied,
            ErrorCode::NotSupported => io::ErrorKind::Unsupported,
            ErrorCode::Timeout => io::ErrorKind::TimedOut,
            ErrorCode::RemoteUnreachable => io::ErrorKind::HostUnreachable,
            ErrorCode::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            ErrorCode::ConnectionReset => io::ErrorKind::ConnectionReset,
            ErrorCode::NameUnresolvable => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        },
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
