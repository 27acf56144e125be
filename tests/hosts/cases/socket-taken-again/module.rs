//! Gives a listener back, and takes it again.

use watm_host_kit::{
    Case, ConfigError, Listener, StartOptions, Wakeup, case, check, done, refused,
};

struct TakenAgain {
    listener: Listener,
}

impl Case for TakenAgain {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        drop(Listener::open("listen", 1).map_err(refused)?);
        let listener = Listener::open("listen", 2).map_err(refused)?;
        Ok(TakenAgain { listener })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        for token in ready {
            if let Ok(Some(_)) = self.listener.accept(3) {
                check(
                    *token == 2,
                    "the connection is listed under the second token",
                );
                done();
            }
        }
        Wakeup::OnReady
    }
}

case!(TakenAgain);
