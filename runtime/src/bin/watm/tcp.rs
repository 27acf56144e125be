//! TCP clients of this program.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use crate::failure::Failure;

/// Listen, and where.
pub(crate) async fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), Failure> {
    let listener = TcpListener::bind(address)
        .await
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    listener.map_err(|error| Failure::failed(format!("{address}: {error}")))
}

/// A client; none if the system is short of something.
pub(crate) async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((client, _)) => {
            // Latency matters more than packets.
            let _ = client.set_nodelay(true);
            Some(client)
        }
        Err(error) => {
            tracing::debug!(target: "watm", "accept: {error}");
            None
        }
    }
}
