//! The dialer that uses the host's own sockets, for bypasses, forwards and tests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::{Carried, Datagrams, Destination, Dial, Refusal};

/// The time limit for connecting: a little more than four unanswered SYNs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The host's own TCP and UDP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

impl Dial for Direct {
    type Stream = TcpStream;
    type Datagrams = UdpSocket;

    async fn stream(&self, to: &Destination) -> Result<TcpStream, Refusal> {
        let stream = in_time(async {
            match to {
                Destination::Address(address) => TcpStream::connect(address).await,
                Destination::Name(name, port) => TcpStream::connect((name.as_str(), *port)).await,
            }
        });
        let stream = stream.await?;
        // Latency matters more than the number of packets.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn datagrams(&self, to: &Destination) -> Result<UdpSocket, Refusal> {
        in_time(async {
            let address = match to {
                Destination::Address(address) => *address,
                Destination::Name(name, port) => {
                    let mut found = lookup_host((name.as_str(), *port)).await?;
                    found.next().ok_or(io::ErrorKind::NotFound)?
                }
            };
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0; 4], 0).into(),
                SocketAddr::V6(_) => ([0u16; 8], 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            // Sending may fail before the socket is ready.
            socket.writable().await?;
            Ok(socket)
        })
        .await
    }
}

async fn in_time<T>(connecting: impl Future<Output = io::Result<T>>) -> Result<T, Refusal> {
    match timeout(PATIENCE, connecting).await {
        Ok(made) => made.map_err(|error| match error.raw_os_error() {
            Some(_) => Refusal::from(&error),
            // Errors of the resolver have no number.
            None => Refusal::HostUnreachable,
        }),
        Err(_) => Err(Refusal::TimedOut),
    }
}

impl Carried for TcpStream {
    fn reset(&mut self) {
        // If this fails, the other end sees an orderly end.
        let _ = self.set_zero_linger();
    }
}

impl Datagrams for UdpSocket {
    fn send(&self, datagram: &[u8]) -> io::Result<bool> {
        // An error here may be the answer to an earlier datagram.
        Ok(self.try_send(datagram).is_ok())
    }

    async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; 65_535];
        loop {
            match self.recv(&mut buffer).await {
                Ok(len) => {
                    buffer.truncate(len);
                    return Ok(Some(buffer));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }
}
