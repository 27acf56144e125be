//! Fails to start as the next generation.

use watm_host_kit::{
    Case, ConfigError, DatagramBatch, DatagramSocket, IpSocketAddress, StartOptions, Wakeup, case,
    check, done, entry, received, refused, same,
};

struct FailedSuccessor {
    socket: DatagramSocket,
    told: bool,
}

impl FailedSuccessor {
    fn answer(&self, remote: IpSocketAddress) {
        check(
            !self.told,
            "the predecessor is not told that another one serves",
        );
        let sent = self.socket.send(&DatagramBatch {
            payload: b"here".to_vec(),
            datagrams: vec![entry(remote, 4, None)],
        });
        same("the answer", &sent, &Ok(1));
        done();
    }
}

impl Case for FailedSuccessor {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        if options.generation > 0 {
            return Err(ConfigError::Other(Some(
                "this module cannot succeed".to_owned(),
            )));
        }
        Ok(FailedSuccessor {
            socket,
            told: false,
        })
    }

    fn serving(&mut self, _: u32) {
        self.told = true;
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        for (remote, _) in received(&self.socket) {
            self.answer(remote);
        }
        Wakeup::OnReady
    }
}

case!(FailedSuccessor);
