//! Connects to a port at which nobody listens.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Destination, ErrorCode, StartOptions, Wakeup, case, done,
    parse_address, refused, same, sockets,
};

struct ConnectRefused {
    stream: ByteStream,
}

impl Case for ConnectRefused {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let server = Destination::Address(parse_address(&options.config)?);
        let stream = sockets::connect(&server, 1).map_err(refused)?;
        Ok(ConnectRefused { stream })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1) && !watm_host_kit::is_done() {
            match self.stream.read(ALL) {
                Ok(Some(data)) if data.is_empty() => {}
                read => {
                    same("the read", &read, &Err(ErrorCode::ConnectionRefused));
                    done();
                }
            }
        }
        Wakeup::OnReady
    }
}

case!(ConnectRefused);
