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
        // The token of the dropped listener may still be listed, as a spurious one.
        if ready.contains(&2) && !watm_host_kit::is_done() {
            match self.listener.accept(3) {
                Ok(None) => {}
                accepted => {
                    check(accepted.is_ok(), "the second listener accepts");
                    done();
                }
            }
        }
        Wakeup::OnReady
    }
}

case!(TakenAgain);
