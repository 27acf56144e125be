//! Connections to the upstreams of listeners, also from their clients' addresses. Called by
//! `watm listen --forward` and `watm serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use super::options;
use crate::Error;

/// A stream to the upstream of a listener, which a flow can be [joined](crate::flow::StreamFlow::join) to.
pub trait UpstreamStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Makes the other end see a failure, and no end, when this is dropped.
    fn reset(&self);
}

impl UpstreamStream for TcpStream {
    fn reset(&self) {
        // If the option cannot be set, the other end sees an end.
        let _ = self.set_zero_linger();
    }
}

/// A machine's own sockets have no reset.
#[cfg(unix)]
impl UpstreamStream for tokio::net::UnixStream {
    fn reset(&self) {}
}

/// The permission to connect to upstreams from the addresses of a module's clients, which are not
/// this machine's. `Module::bind_transparent` gives it, if the module's seal and grant do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindTransparent(TransparentOptions);

/// Options for connections from clients' addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransparentOptions {
    /// The mark of the packets (`SO_MARK`), for rules that route the answers back. `None` sets no
    /// mark.
    pub mark: Option<u32>,
    /// True to keep the client's port too. Otherwise the kernel chooses one for each connection.
    pub client_port: bool,
}

impl BindTransparent {
    /// Returns the permission for a program of the user's own, on behalf of no module. Fails with
    /// [`Error::Options`] as `Module::bind_transparent` does.
    pub fn of_user(options: TransparentOptions) -> Result<BindTransparent, Error> {
        match options::CAN_BIND_TRANSPARENT {
            true => Ok(BindTransparent(options)),
            false => Err(Error::Options(
                "connecting from clients' addresses is supported on Linux only".to_owned(),
            )),
        }
    }
}

/// Connects by TCP to the first of these addresses that answers. Fails with the last one's error.
/// Meant for `listen --forward`, `serve`, and other programs that pass on a module's flows.
///
/// With `source` the connection comes from that address, a client's, and only addresses of its
/// family are tried.
pub async fn connect_upstream(
    addresses: &[SocketAddr],
    source: Option<(&BindTransparent, SocketAddr)>,
) -> io::Result<TcpStream> {
    let mut last = None;
    for address in suitable(addresses, source)? {
        let connected = match source {
            None => TcpStream::connect(address).await,
            Some((how, client)) => match bound(Type::STREAM, how, client) {
                Ok(socket) => {
                    TcpSocket::from_std_stream(socket.into())
                        .connect(address)
                        .await
                }
                Err(error) => Err(error),
            },
        };
        match connected {
            Ok(stream) => {
                // Latency matters more than the number of packets.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Returns a socket for datagrams that sends to the first of these addresses and receives from it
/// alone. Otherwise as [`connect_upstream`].
pub async fn connect_upstream_datagrams(
    addresses: &[SocketAddr],
    source: Option<(&BindTransparent, SocketAddr)>,
) -> io::Result<UdpSocket> {
    let addresses = suitable(addresses, source)?;
    let address = addresses.first().ok_or(io::ErrorKind::NotFound)?;
    let socket = match source {
        None => {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0; 4], 0).into(),
                SocketAddr::V6(_) => ([0; 16], 0).into(),
            };
            UdpSocket::bind(any).await?
        }
        Some((how, client)) => UdpSocket::from_std(bound(Type::DGRAM, how, client)?.into())?,
    };
    socket.connect(address).await?;
    Ok(socket)
}

/// Returns the addresses that can be reached from the source.
fn suitable(
    addresses: &[SocketAddr],
    source: Option<(&BindTransparent, SocketAddr)>,
) -> io::Result<Vec<SocketAddr>> {
    let Some((_, client)) = source else {
        return Ok(addresses.to_vec());
    };
    let client = client.ip().to_canonical();
    let same = |address: &&SocketAddr| address.is_ipv4() == client.is_ipv4();
    let found: Vec<SocketAddr> = addresses.iter().filter(same).copied().collect();
    if found.is_empty() && !addresses.is_empty() {
        let family = if client.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!(
                "the client's address is of {family}, but the upstream has no address of that \
                 family"
            ),
        ));
    }
    Ok(found)
}

fn bound(kind: Type, how: &BindTransparent, client: SocketAddr) -> io::Result<Socket> {
    let BindTransparent(options) = how;
    let ip = client.ip().to_canonical();
    if !can_be_source(ip) {
        return Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!(
                "{ip} cannot be the source of a connection: it is not the address of another \
                 machine"
            ),
        ));
    }
    let port = if options.client_port {
        client.port()
    } else {
        0
    };
    let address = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    socket.set_nonblocking(true)?;
    options::bind_transparent(&socket, address, options.mark).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "; CAP_NET_ADMIN is missing, see `watm doctor`",
            _ => "",
        };
        io::Error::new(error.kind(), format!("bind to {address}: {error}{advice}"))
    })?;
    Ok(socket)
}

/// Returns true if a client elsewhere can have this address. A header may claim any, and the
/// upstream may trust this machine's own.
fn can_be_source(address: IpAddr) -> bool {
    let nobody = match address {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let elsewhere = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    elsewhere && !nobody && !is_own(address)
}

/// Returns true if it is one of this machine's now: the kernel then sends to it from the same
/// address. Sends nothing.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // An address without a route is not this machine's.
    let source = std::net::UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

/// The discard port: any port other than 0 would do.
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_to_be_the_same_and_addresses_ones_of_a_host() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.expect("a runtime").block_on(refused_sources());
    }

    async fn refused_sources() {
        let how = BindTransparent(TransparentOptions::default());
        let v4: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        for (client, expected) in [
            ("[2001:db8::1]:1", "of IPv6"),
            ("0.0.0.0:1", "cannot be the source"),
            ("[::ffff:224.0.0.1]:1", "cannot be the source"),
            ("255.255.255.255:1", "cannot be the source"),
            ("127.0.0.1:1", "cannot be the source"),
            ("127.9.9.9:1", "cannot be the source"),
            ("[::ffff:127.0.0.1]:1", "cannot be the source"),
            ("169.254.1.1:1", "cannot be the source"),
        ] {
            let client = client.parse().expect("an address");
            let error = connect_upstream(&[v4], Some((&how, client))).await;
            let error = error.expect_err("it cannot be").to_string();
            assert!(error.contains(expected), "{client}: {error}");
            let error = connect_upstream_datagrams(&[v4], Some((&how, client))).await;
            assert!(error.expect_err("nor this").to_string().contains(expected));
        }
        let v6: SocketAddr = "[::1]:9".parse().expect("an address");
        for client in ["[::1]:1", "[fe80::1]:1", "[::]:1", "[ff02::1]:1"] {
            let client = client.parse().expect("an address");
            let error = connect_upstream(&[v6], Some((&how, client))).await;
            let error = error.expect_err("it cannot be").to_string();
            assert!(error.contains("cannot be the source"), "{client}: {error}");
        }
        assert!(connect_upstream(&[], None).await.is_err());
    }

    #[test]
    fn an_address_is_own_if_the_machine_has_it() {
        for (address, own) in [
            ("127.0.0.1", true),
            ("203.0.113.7", false),
            ("2001:db8::7", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(is_own(address), own, "{address}");
        }
    }
}
