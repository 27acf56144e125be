use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use super::bind::{advise, prepare};
use super::options;
use crate::Error;

/// Most sockets for one address: more workers than this have no cores.
const MOST: usize = 1024;

/// Listeners on one address, one for each of `count` servers, among which the kernel divides the
/// connections; port 0 lets the system choose one port for all, and `[::]` takes IPv4 too unless
/// `ipv6_only`. Each has a queue of `backlog` connections that nobody has accepted yet, or what
/// the system allows (`net.core.somaxconn`). They are for
/// [`ServerBuilder::tcp_listener`](crate::ServerBuilder::tcp_listener).
///
/// On Linux each has a queue of its own (`SO_REUSEPORT`). Elsewhere they are one socket, from
/// which whoever comes first takes a connection. An address that somebody listens on already is an
/// error on every system.
pub fn share_address(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
    backlog: u32,
) -> Result<Vec<TcpListener>, Error> {
    if !(1..=MOST).contains(&count) {
        return Err(Error::Options(format!(
            "{count} listeners on one address; must be 1 to {MOST}"
        )));
    }
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    listeners(address, ipv6_only, count, backlog).map_err(|error| Error::Grant {
        protocol: "tcp",
        address,
        label: "listen".to_owned(),
        reason: advise(&error),
        source: error,
    })
}

fn listeners(
    address: SocketAddr,
    ipv6_only: bool,
    count: usize,
    backlog: i32,
) -> io::Result<Vec<TcpListener>> {
    // Without the option that shares it: somebody else who has the address shows here.
    let first = socket(address, ipv6_only)?;
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
        let socket = socket(taken, ipv6_only)?;
        options::share_port(&socket)?;
        socket.bind(&taken.into())?;
        socket.listen(backlog)?;
        Ok(socket.into())
    };
    (0..count).map(listener).collect()
}

fn socket(address: SocketAddr, ipv6_only: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    prepare(&socket, address, ipv6_only)?;
    options::reuse_address(&socket)?;
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
}
