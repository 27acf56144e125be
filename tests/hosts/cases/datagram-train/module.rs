//! Sends an empty datagram, a train and a single one in one batch.

use watm_host_kit::{
    Case, ConfigError, DatagramBatch, DatagramSocket, IpSocketAddress, StartOptions, Wakeup, case,
    done, entry, received, refused, same,
};

struct DatagramTrain {
    socket: DatagramSocket,
}

impl DatagramTrain {
    fn answer(&self, remote: IpSocketAddress) {
        let sent = self.socket.send(&DatagramBatch {
            payload: b"aaaabbbbccend".to_vec(),
            datagrams: vec![
                entry(remote, 0, None),
                entry(remote, 10, Some(4)),
                entry(remote, 3, None),
            ],
        });
        same("the entries that were accepted", &sent, &Ok(3));
        done();
    }
}

impl Case for DatagramTrain {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        Ok(DatagramTrain { socket })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        for (remote, _) in received(&self.socket) {
            self.answer(remote);
        }
        Wakeup::OnReady
    }
}

case!(DatagramTrain);
