//! Sends datagrams to an address that it may not send to.

use watm_host_kit::{
    Case, ConfigError, DatagramBatch, DatagramSocket, ErrorCode, IpSocketAddress, StartOptions,
    Wakeup, case, done, entry, parse_address, received, refused, same,
};

struct Stranger {
    socket: DatagramSocket,
    stranger: IpSocketAddress,
}

impl Stranger {
    fn answer(&self, remote: IpSocketAddress) {
        let send = |to: &[IpSocketAddress]| {
            self.socket.send(&DatagramBatch {
                payload: b"hello".repeat(to.len()),
                datagrams: to.iter().map(|to| entry(*to, 5, None)).collect(),
            })
        };
        let denied = Err(ErrorCode::AccessDenied);
        same(
            "a batch to a stranger and the peer",
            &send(&[self.stranger, remote]),
            &denied,
        );
        same("a batch to the peer alone", &send(&[remote]), &Ok(1));
        done();
    }
}

impl Case for Stranger {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stranger = parse_address(&options.config)?;
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        Ok(Stranger { socket, stranger })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        for (remote, _) in received(&self.socket) {
            self.answer(remote);
        }
        Wakeup::OnReady
    }
}

case!(Stranger);
