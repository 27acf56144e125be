//! Port forwards: local ports that lead to one destination through a dialer. `watm dial` and
//! tunnels serve them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpStream, UdpSocket};

use crate::join::join;
use crate::table::Table;
use crate::{Counters, Destination, Dial, Error, Limits};

/// Forwards a client to the destination until both directions have ended.
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
            // If this fails, the client sees an orderly end.
            let _ = client.set_zero_linger();
            Err(Error::Dial {
                to: to.clone(),
                why,
            })
        }
    }
}

/// Forwards the socket's datagrams to the destination, with a flow for each source address, and the
/// answers back. Runs until it is dropped. An error concerns one flow and goes to `failed`.
pub async fn datagrams<D: Dial>(
    socket: UdpSocket,
    to: &Destination,
    dial: Arc<D>,
    limits: Limits,
    counters: Arc<Counters>,
    failed: impl Fn(Error),
) {
    /// The longest UDP datagram, in bytes.
    const LONGEST: usize = 65_535;
    // Sending may fail before the socket is ready. An error of the socket comes again later.
    let _ = socket.writable().await;
    let socket = Arc::new(socket);
    let mut table: Table<Client, D> = Table::new(dial, limits, counters);
    let mut buffer = vec![0; LONGEST];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An ICMP error for an earlier answer, for instance.
                let Ok((len, client)) = received else { continue };
                let socket = socket.clone();
                table.pass(&Client(client), to, &buffer[..len], move |datagram| {
                    // Datagrams that the socket does not take now are lost, as any datagram may be.
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
