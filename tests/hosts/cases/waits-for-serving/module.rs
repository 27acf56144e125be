//! Finds nothing on its socket before it serves.

use watm_host_kit::{
    ALL, Case, ConfigError, DatagramSocket, StartOptions, Wakeup, case, check, datagrams, done,
    refused, same,
};

struct WaitsForServing {
    socket: DatagramSocket,
    generation: u32,
    serves: bool,
}

impl Case for WaitsForServing {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let socket = DatagramSocket::open("listen", 1).map_err(refused)?;
        if options.generation == 1 {
            let found = socket
                .receive(ALL, ALL)
                .map(|batch| datagrams(&batch).len());
            same("the datagrams before it serves", &found, &Ok(0));
        }
        Ok(WaitsForServing {
            socket,
            generation: options.generation,
            serves: options.generation == 0,
        })
    }

    fn serving(&mut self, generation: u32) {
        self.serves = generation == self.generation;
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        // The first generation lets its datagrams wait.
        if self.generation == 1 && ready.contains(&1) && !watm_host_kit::is_done() {
            let Ok(batch) = self.socket.receive(ALL, ALL) else {
                return Wakeup::OnReady;
            };
            let found = datagrams(&batch);
            if !found.is_empty() {
                check(self.serves, "datagrams arrive once the module serves");
                let texts: Vec<_> = found.into_iter().map(|(_, text)| text).collect();
                same("the datagrams", &texts, &vec![b"early".to_vec()]);
                done();
            }
        }
        match self.serves {
            true => Wakeup::OnReady,
            false => Wakeup::Finished,
        }
    }
}

case!(WaitsForServing);
