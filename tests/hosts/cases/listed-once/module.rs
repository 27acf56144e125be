//! Falls short once, and lets datagrams wait.

use watm_host_kit::{
    ALL, Case, ConfigError, DatagramSocket, MILLISECOND, StartOptions, Wakeup, case, datagrams,
    done, refused, same,
};

struct ListedOnce {
    socket: DatagramSocket,
    /// The number of times that the token was listed since the socket was found empty.
    listed: u64,
    until: Option<u64>,
    armed: bool,
}

impl Case for ListedOnce {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        Ok(ListedOnce {
            socket,
            listed: 0,
            until: None,
            armed: false,
        })
    }

    fn process(&mut self, now: u64, ready: &[u64]) -> Wakeup {
        let listed = ready.iter().filter(|token| **token == 1).count() as u64;
        if !self.armed {
            // The announcement of a new socket is over once it is found empty.
            let found = self
                .socket
                .receive(ALL, ALL)
                .map(|batch| datagrams(&batch).len());
            self.armed = found == Ok(0);
            return Wakeup::OnReady;
        }
        self.listed += listed;
        match self.until {
            None if listed > 0 => self.until = Some(now + 500 * MILLISECOND),
            Some(until) if now >= until => {
                same("the number of listings", &self.listed, &1);
                let found = self
                    .socket
                    .receive(ALL, ALL)
                    .map(|batch| datagrams(&batch).len());
                same("the datagrams that waited", &found, &Ok(2));
                done();
                return Wakeup::OnReady;
            }
            _ => {}
        }
        self.until.map_or(Wakeup::OnReady, Wakeup::At)
    }
}

case!(ListedOnce);
