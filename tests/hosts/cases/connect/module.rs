//! Connects, and tries to write before the stream is listed.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Destination, StartOptions, Wakeup, case, done,
    parse_address, refused, same, sockets,
};

struct Connect {
    stream: ByteStream,
    written: bool,
}

impl Case for Connect {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let server = Destination::Address(parse_address(&options.config)?);
        let stream = sockets::connect(&server, 1).map_err(refused)?;
        same("an early write", &stream.write(b"early"), &Ok(0));
        same("an early read", &stream.read(ALL), &Ok(Some(Vec::new())));
        Ok(Connect {
            stream,
            written: false,
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if !ready.contains(&1) || watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        if !self.written {
            match self.stream.write(b"hello") {
                Ok(0) => return Wakeup::OnReady,
                written => same("the write", &written, &Ok(5)),
            }
            self.written = true;
        }
        match self.stream.read(ALL) {
            Ok(Some(data)) if data.is_empty() => {}
            read => {
                same("the answer", &read, &Ok(Some(b"bye".to_vec())));
                done();
            }
        }
        Wakeup::OnReady
    }
}

case!(Connect);
