//! TCP listeners and clients of the commands.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use crate::failure::Failure;

/// Binds a listener. Returns it with its address.
pub(crate) async fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), Failure> {
    let listener = TcpListener::bind(address)
        .await
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    listener.map_err(|error| Failure::failed(format!("{address}: {error}")))
}

/// Accepts a client. Returns `None` if the system lacks a resource.
pub(crate) async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((client, _)) => {
            // Latency matters more than the number of packets.
            let _ = client.set_nodelay(true);
            Some(client)
        }
        Err(error) => {
            tracing::debug!(target: "watm", "accept: {error}");
            None
        }
    }
}
