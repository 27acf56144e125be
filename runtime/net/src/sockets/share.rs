//! Several sockets on one address, one for each of several servers. Called by the application, such
//! as `watm serve`.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::bind::{advise, bind_datagrams, prepare};
use super::options;
use super::place::{DatagramSocket, Place};
use crate::{Error, Steer};

/// The most sockets for one address: no machine has cores for more workers.
const MOST: usize = 1024;

/// The most sockets of one address that datagrams can name ([`Steer`]). It leaves a module four values
/// of the byte for each. 1: this system does not steer datagrams.
pub const MOST_STEERED: usize = if options::CAN_SHARE_PORTS { 64 } else { 1 };

/// Binds listeners on one address, one for each of `count` servers, among which the kernel divides
/// the connections. With port 0 the system chooses one port for all. `[::]` takes IPv4 too unless
/// `ipv6_only` is set. Each listener has a backlog of `backlog` connections, or the limit of the
/// system (`net.core.somaxconn`). Pass them to `ServerBuilder::tcp_listener`.
///
/// On Linux each has a backlog of its own (`SO_REUSEPORT`). Elsewhere they are one socket, and the
/// first server to accept takes a connection. An address that is already in use is an error on
/// every system.
pub fn share_address(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
    backlog: u32,
) -> Result<Vec<TcpListener>, Error> {
    check(count, "listeners", MOST)?;
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    listeners(address, ipv6_only, count, backlog).map_err(|error| failed("tcp", address, error))
}

/// Binds sockets for datagrams on one address, as [`share_address`] does for listeners. Pass them
/// to `ServerBuilder::udp_socket`. Datagrams that name a socket, by `steer`, arrive there. All
/// others from one address and port arrive at the same socket. Only Linux supports
/// more than one socket: the way in which other systems divide the datagrams of one port breaks
/// sessions.
pub fn share_datagram_address(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
    steer: &[Steer],
) -> Result<Vec<DatagramSocket>, Error> {
    check(count, "sockets for datagrams", MOST)?;
    if count > 1 && !options::CAN_SHARE_PORTS {
        return Err(Error::Options(format!(
            "{count} sockets for datagrams on {address}; must be 1: this system does not \
             distribute datagrams by sender"
        )));
    }
    if count > 1 && !steer.is_empty() {
        check(count, "sockets for steered datagrams", MOST_STEERED)?;
    }
    let sockets = datagram_sockets(address, ipv6_only, count)
        .map_err(|error| failed("udp", address, error))?;
    if let ([_, ..], [_, .., last]) = (steer, &*sockets) {
        options::steer(&last.socket, steer, count).map_err(|error| {
            Error::System(format!(
                "the kernel does not steer the datagrams of udp://{address} to {count} sockets: \
                 {error}; set workers to 1"
            ))
        })?;
    }
    Ok(sockets)
}

fn check(count: usize, what: &str, most: usize) -> Result<(), Error> {
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "{count} {what} on one address; must be 1 to {most}"
        ))),
    }
}

fn failed(protocol: &'static str, address: SocketAddr, error: io::Error) -> Error {
    Error::Grant {
        protocol,
        address,
        label: "listen".to_owned(),
        reason: advise(&error),
        source: error,
    }
}

fn listeners(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
    backlog: i32,
) -> io::Result<Vec<TcpListener>> {
    // The first socket does not have the option that shares the port, so that an address in use is
    // an error here.
    let first = socket(Type::STREAM, address, ipv6_only)?;
    options::reuse_address(&first)?;
    first.bind(&address.into())?;
    let listens_apart = count > 1 && options::CAN_SHARE_PORTS;
    if !listens_apart {
        first.listen(backlog)?;
        let first: TcpListener = first.into();
        let others = (1..count).map(|_| first.try_clone());
        let mut all = others.collect::<io::Result<Vec<_>>>()?;
        all.push(first);
        return Ok(all);
    }
    first.listen(1)?;
    let taken = TcpListener::from(first).local_addr()?;
    let listener = |_| {
        let socket = socket(Type::STREAM, taken, ipv6_only)?;
        options::reuse_address(&socket)?;
        options::share_port(&socket)?;
        socket.bind(&taken.into())?;
        socket.listen(backlog)?;
        Ok(socket.into())
    };
    (0..count).map(listener).collect()
}

fn datagram_sockets(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
) -> io::Result<Vec<DatagramSocket>> {
    // See `listeners`.
    let first = socket(Type::DGRAM, address, ipv6_only)?;
    let first = bind_datagrams(first, address)?;
    if count == 1 {
        return Ok(vec![first.into()]);
    }
    let taken = first.local_addr()?;
    drop(first);
    let shared = |_| {
        let socket = socket(Type::DGRAM, taken, ipv6_only)?;
        options::share_port(&socket)?;
        bind_datagrams(socket, taken)
    };
    let sockets: Vec<UdpSocket> = (0..count).map(shared).collect::<io::Result<_>>()?;
    let places = Place::of(&sockets)?;
    let together = |(socket, place)| DatagramSocket { socket, place };
    Ok(sockets.into_iter().zip(places).map(together).collect())
}

fn socket(kind: Type, address: SocketAddr, ipv6_only: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    prepare(&socket, address, ipv6_only)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn all_have_one_port_and_each_gets_connections() {
        let listeners = share_address(ANY, false, 2, 128).expect("a port");
        let ports: BTreeSet<u16> = listeners
            .iter()
            .map(|listener| listener.local_addr().expect("bound").port())
            .collect();
        assert_eq!(ports.len(), 1);
        let address = listeners[0].local_addr().expect("bound");
        let clients: Vec<TcpStream> = (0..64)
            .map(|_| TcpStream::connect(address).expect("connects"))
            .collect();
        let accepted = listeners
            .iter()
            .map(|listener| {
                listener.set_nonblocking(true).expect("set");
                std::iter::from_fn(|| listener.accept().ok()).count()
            })
            .collect::<Vec<_>>();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        if options::CAN_SHARE_PORTS {
            assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
        }
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        for taken_by in [1, 2] {
            let taken = share_address(ANY, false, taken_by, 128).expect("a port");
            let address = taken[0].local_addr().expect("bound");
            for count in [1, 2] {
                let error = share_address(address, false, count, 128).expect_err("it is taken");
                assert!(error.to_string().contains("already in use"), "{error}");
            }
        }
        assert!(share_address(ANY, false, 0, 128).is_err());
    }

    #[test]
    fn datagrams_of_one_sender_come_to_one_socket() {
        let count = if options::CAN_SHARE_PORTS { 2 } else { 1 };
        let sockets = share_datagram_address(ANY, false, count, &[]).expect("a port");
        let address = sockets[0].socket.local_addr().expect("bound");
        let senders: Vec<UdpSocket> = (0..64)
            .map(|_| UdpSocket::bind(ANY).expect("a port"))
            .collect();
        for round in 0..3 {
            for sender in &senders {
                sender.send_to(&[round], address).expect("sent");
            }
        }
        let mut heard = Vec::new();
        for socket in &sockets {
            let mut by = std::collections::BTreeMap::<SocketAddr, usize>::new();
            while let Ok((_, from)) = socket.socket.recv_from(&mut [0]) {
                *by.entry(from).or_default() += 1;
            }
            assert!(
                !by.is_empty() && by.values().all(|count| *count == 3),
                "{by:?}"
            );
            heard.push(by.len());
        }
        assert_eq!(heard.iter().sum::<usize>(), senders.len());
        // The address is taken, however many sockets it has.
        for count in [1, count] {
            let error = share_datagram_address(address, false, count, &[]).err();
            let error = error.expect("it is taken");
            assert!(error.to_string().contains("already in use"), "{error}");
        }
        assert!(share_datagram_address(ANY, false, 0, &[]).is_err());
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn datagrams_that_name_a_socket_come_to_it_whoever_sends_them() {
        const COUNT: usize = 3;
        let steer = [Steer { kind: 2, byte: 11 }, Steer { kind: 4, byte: 7 }];
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().expect("an address");
            let sockets = share_datagram_address(any, false, COUNT, &steer).expect("a port");
            let address = sockets[0].socket.local_addr().expect("bound");
            let heard = |number: usize| {
                let socket = &sockets[number].socket;
                std::iter::from_fn(|| socket.recv(&mut [0; 12]).ok()).count()
            };
            for name in 0..=u8::MAX {
                let sender = UdpSocket::bind(any).expect("a port");
                for Steer { kind, byte } in steer {
                    let mut datagram = [kind; 12];
                    datagram[usize::from(byte)] = name;
                    sender.send_to(&datagram, address).expect("sent");
                }
                for number in 0..COUNT {
                    let named = usize::from(name) % COUNT == number;
                    assert_eq!(heard(number), if named { 2 } else { 0 }, "{name}");
                }
                // Others come to one socket, whatever they contain.
                for name in 0..6 {
                    let datagram = [3, 0, 0, 0, 0, 0, 0, name];
                    sender.send_to(&datagram, address).expect("sent");
                }
                let mut all: Vec<usize> = (0..COUNT).map(heard).collect();
                all.sort_unstable();
                assert_eq!(all, [0, 0, 6]);
            }
            assert!(share_datagram_address(any, false, 65, &steer).is_err());
        }
    }

    /// A socket that is closed changes the choice of the kernel among the others.
    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn a_server_that_ends_leaves_the_others_their_datagrams() {
        let steer = [Steer { kind: 4, byte: 1 }];
        let mut sockets = share_datagram_address(ANY, false, 3, &steer).expect("a port");
        let address = sockets[0].socket.local_addr().expect("bound");
        sockets.remove(0).socket.set_nonblocking(true).expect("set");
        let sender = UdpSocket::bind(ANY).expect("a port");
        for name in 0..3 {
            sender.send_to(&[4, name], address).expect("sent");
        }
        for (socket, name) in sockets.iter().zip(1..) {
            let mut datagram = [0; 2];
            socket.socket.recv(&mut datagram).expect("its own");
            assert_eq!(datagram, [4, name]);
            assert!(socket.socket.recv(&mut datagram).is_err());
        }
        drop(sockets);
        UdpSocket::bind(address).expect("the address is free");
    }
}
