//! Sends batches with lengths that do not add up.

use watm_host_kit::{
    Case, ConfigError, DatagramBatch, DatagramSocket, ErrorCode, IpSocketAddress, StartOptions,
    Wakeup, case, done, entry, received, refused, same,
};

struct DatagramLengths {
    socket: DatagramSocket,
}

impl DatagramLengths {
    fn answer(&self, remote: IpSocketAddress) {
        let send = |lengths: &[usize], segment_size| {
            self.socket.send(&DatagramBatch {
                payload: b"four".to_vec(),
                datagrams: lengths
                    .iter()
                    .map(|len| entry(remote, *len, segment_size))
                    .collect(),
            })
        };
        for lengths in [&[5][..], &[2, 1], &[u32::MAX as usize, 5], &[]] {
            same(
                &format!("{lengths:?}"),
                &send(lengths, None),
                &Err(ErrorCode::InvalidArgument),
            );
        }
        same(
            "a train of nothing",
            &send(&[4], Some(0)),
            &Err(ErrorCode::InvalidArgument),
        );
        same("a good batch", &send(&[4], None), &Ok(1));
        done();
    }
}

impl Case for DatagramLengths {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        Ok(DatagramLengths { socket })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        for (remote, _) in received(&self.socket) {
            self.answer(remote);
        }
        Wakeup::OnReady
    }
}

case!(DatagramLengths);
