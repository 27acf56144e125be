//! Reads a connection that its peer has reset.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, ErrorCode, Listener, StartOptions, Wakeup, case, done,
    refused, same,
};

struct ResetByPeer {
    listener: Listener,
    stream: Option<ByteStream>,
}

impl Case for ResetByPeer {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let listener = Listener::open("listen", 1).map_err(refused)?;
        Ok(ResetByPeer {
            listener,
            stream: None,
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        match &self.stream {
            None => {
                if let Ok(Some(stream)) = self.listener.accept(2) {
                    same("the signal", &stream.write(b"go"), &Ok(2));
                    self.stream = Some(stream);
                }
            }
            Some(stream) if ready.contains(&2) && !watm_host_kit::is_done() => {
                match stream.read(ALL) {
                    Ok(Some(data)) if data.is_empty() => {}
                    read => {
                        same("the read", &read, &Err(ErrorCode::ConnectionReset));
                        done();
                    }
                }
            }
            Some(_) => {}
        }
        Wakeup::OnReady
    }
}

case!(ResetByPeer);
