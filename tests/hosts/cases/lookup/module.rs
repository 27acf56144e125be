//! Looks up a name that it may send datagrams to.

use watm_host_kit::names::Lookup;
use watm_host_kit::{Case, ConfigError, StartOptions, Wakeup, case, check, done, refused};

struct LookUp {
    lookup: Lookup,
}

impl Case for LookUp {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let lookup = Lookup::start("localhost", 53, 1).map_err(refused)?;
        Ok(LookUp { lookup })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1) && !watm_host_kit::is_done() {
            match self.lookup.addresses() {
                Ok(None) => check(false, "there is an answer when the token is listed"),
                Ok(Some(addresses)) => {
                    check(
                        !addresses.is_empty() && addresses.len() <= 16,
                        "from 1 to 16 addresses",
                    );
                    check(
                        addresses.iter().all(|address| address.port == 53),
                        "the port is that of the lookup",
                    );
                }
                Err(code) => check(false, &format!("the answer: {code:?}")),
            }
            done();
        }
        Wakeup::OnReady
    }
}

case!(LookUp);
