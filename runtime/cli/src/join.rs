//! Joins a connection through a module with a TCP connection. `dial` and `listen` use it.

use std::sync::Arc;

use tokio::net::TcpStream;
use watm_runtime::{Connection, ErrorCode};

use crate::stop::Stop;

/// Joins a stream to a TCP connection until both directions have ended, one fails, or a signal ends
/// the program. A failure at one side, and the end of the program, resets the other, so that
/// truncated data does not look complete.
pub(crate) async fn with_tcp(
    carried: Connection,
    tcp: TcpStream,
    stop: &mut Stop,
) -> Result<(), String> {
    let result = tokio::select! {
        joined = carried.join(Box::new(tcp), Arc::new(())) => {
            joined.map_err(|error| error.to_string())
        }
        () = stop.requested() => Ok(()),
    };
    if result.is_err() {
        carried.abort(ErrorCode::ConnectionReset);
    }
    carried.close().await;
    result
}

/// Makes the other end see a failure when `tcp` is dropped.
pub(crate) fn reset(tcp: &TcpStream) {
    // If this fails, the other end sees an orderly end.
    let _ = tcp.set_zero_linger();
}
