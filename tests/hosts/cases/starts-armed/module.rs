//! Relies on the first announcement of a listener and of a connection.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Listener, StartOptions, Wakeup, case, check, done, refused,
    same,
};

struct StartsArmed {
    listener: Listener,
    stream: Option<ByteStream>,
}

impl Case for StartsArmed {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let listener = Listener::open("listen", 1).map_err(refused)?;
        Ok(StartsArmed {
            listener,
            stream: None,
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        // No call has fallen short: both tokens are listed because new resources are armed.
        if ready.contains(&1) && self.stream.is_none() {
            match self.listener.accept(2) {
                Ok(stream) => self.stream = stream,
                Err(code) => check(false, &format!("accept: {code:?}")),
            }
        } else if ready.contains(&2)
            && let Some(stream) = &self.stream
            && let Ok(Some(data)) = stream.read(ALL)
            && !data.is_empty()
        {
            same("the bytes", &data.as_slice(), &b"hello".as_slice());
            done();
        }
        Wakeup::OnReady
    }
}

case!(StartsArmed);
