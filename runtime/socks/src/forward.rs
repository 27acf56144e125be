//! Ports here for one destination there.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpStream, UdpSocket};

use crate::join::join;
use crate::table::Table;
use crate::{Counters, Destination, Dial, Error, Limits};

/// Carry a client to the destination, until both directions have ended.
pub async fn stream<D: Dial>(
    client: TcpStream,
    to: &Destination,
    dial: &D,
    counters: &Counters,
) -> Result<(), Error> {
    counters.clients.add();
    match dial.stream(to).await {
        Ok(connection) => {
            counters.connected.add();
            join(client, connection, &[]).await
        }
        Err(why) => {
            counters.failed.add();
            // If it cannot be set, the client sees an end.
            let _ = client.set_zero_linger();
            Err(Error::Dial {
                to: to.clone(),
                why,
            })
        }
    }
}

/// Carry what comes to the socket to the destination, with a flow for each address that it comes
/// from, and the answers back. For ever; an error is of one flow, which `failed` is told of.
pub async fn datagrams<D: Dial>(
    socket: UdpSocket,
    to: &Destination,
    dial: Arc<D>,
    limits: Limits,
    counters: Arc<Counters>,
    failed: impl Fn(Error),
) {
    /// The longest datagram that UDP has.
    const LONGEST: usize = 65_535;
    // Nothing can be sent before this is known. An error is one of the socket's, which comes again.
    let _ = socket.writable().await;
    let socket = Arc::new(socket);
    let mut table: Table<Client, D> = Table::new(dial, limits, counters);
    let mut buffer = vec![0; LONGEST];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // What a client's system answered to one of ours, for instance.
                let Ok((len, client)) = received else { continue };
                let socket = socket.clone();
                table.pass(&Client(client), to, &buffer[..len], move |datagram| {
                    // What the socket does not take now is lost, as with any datagram.
                    let _ = socket.try_send_to(datagram, client);
                });
            }
            ended = table.ended() => {
                if let Err((_, why)) = ended {
                    failed(Error::Dial { to: to.clone(), why });
                }
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Client(SocketAddr);

impl From<Client> for Destination {
    fn from(client: Client) -> Destination {
        Destination::Address(client.0)
    }
}
