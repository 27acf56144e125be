//! Traps while the application has a flow.

use watm_host_kit::{
    ByteStream, Case, ConfigError, StartOptions, Wakeup, case, flows, info, refused,
};

struct Trap {
    stream: ByteStream,
}

impl Case for Trap {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stream = flows::open_stream(&info(), 1).map_err(refused)?;
        Ok(Trap { stream })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1) {
            let read = self.stream.read(16);
            assert_ne!(read, Ok(Some(b"trap".to_vec())), "told to");
        }
        Wakeup::OnReady
    }
}

case!(Trap);
