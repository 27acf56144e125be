//! UDP ASSOCIATE (RFC 1928 section 7): a socket for one client, which lives as long as its
//! connection. `Proxy` serves it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};

use crate::socks5::{Unfit, answer, unwrap, wrap};
use crate::table::Table;
use crate::{Counters, Destination, Dial, Error, Limits, Refusal};

/// The longest UDP datagram, in bytes.
const LONGEST: usize = 65_535;

/// Serves the client's datagrams until it closes its connection. `from` is the address that the
/// client announces as its source. Only its port counts, if it is not 0. Otherwise the first port
/// that the client sends from is used.
pub(crate) async fn serve<D: Dial>(
    mut client: TcpStream,
    from: &Destination,
    dial: Arc<D>,
    limits: Limits,
    counters: Arc<Counters>,
) -> Result<(), Error> {
    let addresses = async {
        let socket = UdpSocket::bind((client.local_addr()?.ip(), 0)).await?;
        let bound = socket.local_addr()?;
        // Sending may fail before the socket is ready.
        socket.writable().await?;
        std::io::Result::Ok((
            Arc::new(socket),
            bound,
            client.peer_addr()?.ip().to_canonical(),
        ))
    };
    let (socket, bound, ip) = match addresses.await {
        Ok(made) => made,
        Err(error) => {
            let refusal = Refusal::Failed(error.to_string());
            answer(&mut client, Err(&refusal)).await?;
            return Err(Error::client(error));
        }
    };
    answer(&mut client, Ok(Some(bound))).await?;
    counters.connected.add();
    let mut sender = Sender {
        ip,
        port: Some(from.port()).filter(|port| *port != 0),
    };
    let mut table: Table<Destination, D> = Table::new(dial, limits, counters.clone());
    let mut buffer = vec![0; LONGEST];
    let mut nothing = [0; 256];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An ICMP error for an earlier answer, for instance.
                let Ok((len, address)) = received else { continue };
                if !sender.is(address) {
                    counters.dropped_strangers.add();
                    continue;
                }
                match unwrap(&buffer[..len]) {
                    Ok((to, payload)) => {
                        let back = back(&socket, address, &to);
                        table.pass(&to, &to, payload, back);
                    }
                    Err(Unfit::Fragment) => counters.dropped_fragments.add(),
                    Err(Unfit::Malformed) => counters.dropped_malformed.add(),
                }
            }
            ended = table.ended() => match ended {
                // Other destinations would fail as well.
                Err((to, why @ Refusal::NotSupported)) => return Err(Error::Dial { to, why }),
                Err((to, why)) => tracing::debug!(target: "watm::socks", "{to}: {why}"),
                Ok(()) => {}
            },
            // Bytes on the connection have no meaning.
            said = client.read(&mut nothing) => match said.map_err(Error::client)? {
                0 => return Ok(()),
                _ => continue,
            },
        }
    }
}

/// Returns a function that passes datagrams from `to` on to the client.
fn back(socket: &Arc<UdpSocket>, client: SocketAddr, to: &Destination) -> impl Fn(&[u8]) + use<> {
    let (socket, head) = (socket.clone(), wrap(to));
    move |datagram| {
        // Datagrams that the socket does not take now are lost, as any datagram may be.
        let _ = socket.try_send_to(&[&head, datagram].concat(), client);
    }
}

/// The address that may send, whose port is known after the first datagram.
struct Sender {
    ip: IpAddr,
    port: Option<u16>,
}

impl Sender {
    fn is(&mut self, address: SocketAddr) -> bool {
        let same = address.ip().to_canonical() == self.ip;
        same && *self.port.get_or_insert(address.port()) == address.port()
    }
}
