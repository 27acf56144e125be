//! Dialers as backends of the local proxies of `watm-socks`.

use std::sync::Arc;

use tokio::net::TcpStream;
use watm_net::flow::join_failure;
use watm_socks::{Carried, Destination, Dial, Error as Broken, Refusal};

use crate::{Connection, DatagramFlow, DialOptions, Dialer, Error, ErrorCode};

impl Dial for Dialer {
    type Stream = Connection;
    type Datagrams = DatagramFlow;

    async fn stream(&self, to: &Destination) -> Result<Connection, Refusal> {
        self.dial(&to.to_string()).await.map_err(refusal)
    }

    async fn datagrams(&self, to: &Destination) -> Result<DatagramFlow, Refusal> {
        self.dial_datagrams(&to.to_string()).await.map_err(refusal)
    }
}

/// A dialer that dials with the same options each time. Made by [`Dialer::with_options`].
pub struct DialerWithOptions {
    dialer: Dialer,
    options: DialOptions,
}

impl Dialer {
    /// Returns this dialer with options for every connection that it makes for a proxy of
    /// `watm-socks`.
    pub fn with_options(&self, options: DialOptions) -> DialerWithOptions {
        DialerWithOptions {
            dialer: self.clone(),
            options,
        }
    }
}

impl Dial for DialerWithOptions {
    type Stream = Connection;
    type Datagrams = DatagramFlow;

    async fn stream(&self, to: &Destination) -> Result<Connection, Refusal> {
        let options = self.options.clone();
        let dialled = self.dialer.dial_with(&to.to_string(), options).await;
        dialled.map_err(refusal)
    }

    /// Fails: options are for streams alone.
    async fn datagrams(&self, _to: &Destination) -> Result<DatagramFlow, Refusal> {
        Err(Refusal::NotSupported)
    }
}

impl Carried for Connection {
    fn reset(&mut self) {
        self.abort(ErrorCode::ConnectionReset);
    }

    async fn carry(self, client: TcpStream) -> Result<(), Broken> {
        let joined = self.join(Box::new(client), Arc::new(())).await;
        joined.map_err(|side| {
            self.abort(ErrorCode::ConnectionReset);
            join_failure(side)
        })
    }
}

/// Returns the answer that a client of the proxy gets.
fn refusal(error: Error) -> Refusal {
    match &error {
        Error::Denied { .. } => Refusal::NotAllowed,
        Error::NoDatagrams { .. } => Refusal::NotSupported,
        Error::Timeout { .. } => Refusal::TimedOut,
        Error::Connect { source, .. } => match Refusal::from(source) {
            // This error includes the module's name.
            Refusal::Failed(_) => Refusal::Failed(error.to_string()),
            refusal => refusal,
        },
        Error::Refused { code, .. } => match code {
            ErrorCode::AccessDenied => Refusal::NotAllowed,
            ErrorCode::NotSupported => Refusal::NotSupported,
            ErrorCode::Timeout => Refusal::TimedOut,
            ErrorCode::ConnectionRefused => Refusal::Refused,
            ErrorCode::RemoteUnreachable | ErrorCode::NameUnresolvable => Refusal::HostUnreachable,
            _ => Refusal::Failed(error.to_string()),
        },
        _ => Refusal::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_error_of_a_dial_has_its_refusal() {
        let module = || "m".to_owned();
        let answered = |code| {
            refusal(Error::Refused {
                module: module(),
                code,
            })
        };
        for (code, expected) in [
            (ErrorCode::AccessDenied, Refusal::NotAllowed),
            (ErrorCode::ConnectionRefused, Refusal::Refused),
            (ErrorCode::Timeout, Refusal::TimedOut),
            (ErrorCode::RemoteUnreachable, Refusal::HostUnreachable),
            (ErrorCode::NameUnresolvable, Refusal::HostUnreachable),
            (ErrorCode::NotSupported, Refusal::NotSupported),
            (
                ErrorCode::LimitReached,
                Refusal::Failed("m: limit reached".to_owned()),
            ),
        ] {
            assert_eq!(answered(code), expected);
        }
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, Refusal::Refused),
            (io::ErrorKind::TimedOut, Refusal::TimedOut),
            (io::ErrorKind::HostUnreachable, Refusal::HostUnreachable),
            (
                io::ErrorKind::NetworkUnreachable,
                Refusal::NetworkUnreachable,
            ),
        ] {
            let connecting = Error::Connect {
                module: module(),
                target: "192.0.2.1:80".to_owned(),
                source: kind.into(),
            };
            assert_eq!(refusal(connecting), expected);
        }
        let denied = Error::Denied {
            module: module(),
            target: "192.0.2.1:80".to_owned(),
        };
        assert_eq!(refusal(denied), Refusal::NotAllowed);
        let late = Error::Timeout {
            module: module(),
            after: std::time::Duration::from_secs(1),
        };
        assert_eq!(refusal(late), Refusal::TimedOut);
    }
}
