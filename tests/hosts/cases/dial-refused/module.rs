//! Refuses to carry a stream, and then datagrams.

use watm_host_kit::{
    ByteStream, Case, ConfigError, DatagramFlow, Destination, ErrorCode, StartOptions, Wakeup,
    case, check, done,
};

struct DialRefused {
    dials: u32,
}

impl Case for DialRefused {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        Ok(DialRefused { dials: 0 })
    }

    fn dial(&mut self, _: Option<Destination>, _: ByteStream) -> Result<u64, ErrorCode> {
        self.dials += 1;
        Err(ErrorCode::NotSupported)
    }

    fn dial_datagrams(
        &mut self,
        to: Option<Destination>,
        _: DatagramFlow,
    ) -> Result<u64, ErrorCode> {
        check(
            self.dials == 1,
            "the instance goes on after it has refused a stream",
        );
        check(to.is_none(), "no destination was given");
        done();
        Err(ErrorCode::NotSupported)
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        Wakeup::OnReady
    }
}

case!(DialRefused);
