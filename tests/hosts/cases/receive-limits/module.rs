//! Receives waiting datagrams by small limits.

use watm_host_kit::{
    ALL, Case, ConfigError, DatagramSocket, MILLISECOND, StartOptions, Wakeup, case, check,
    datagrams, done, refused, same,
};

struct ReceiveLimits {
    socket: DatagramSocket,
    begin: Option<u64>,
}

impl Case for ReceiveLimits {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        Ok(ReceiveLimits {
            socket,
            begin: None,
        })
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        if watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        let until = *self.begin.get_or_insert(now) + 500 * MILLISECOND;
        if now < until {
            return Wakeup::At(until);
        }
        let mut found = Vec::new();
        for (most, bytes) in [(2, ALL), (ALL, 2000), (ALL, ALL)] {
            match self.socket.receive(most, bytes) {
                Ok(batch) => {
                    check(
                        batch.datagrams.len() <= most as usize,
                        "no more entries than asked for",
                    );
                    check(
                        batch.payload.len() <= bytes as usize,
                        "no more bytes than asked for",
                    );
                    found.extend(
                        datagrams(&batch)
                            .into_iter()
                            .map(|(_, datagram)| datagram.len()),
                    );
                }
                Err(code) => check(false, &format!("receive: {code:?}")),
            }
        }
        same("the datagrams", &found, &vec![3, 3, 3, 900, 900, 900]);
        done();
        Wakeup::OnReady
    }
}

case!(ReceiveLimits);
