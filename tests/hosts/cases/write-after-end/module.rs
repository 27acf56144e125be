//! Writes to streams whose write direction it has shut down.

use watm_host_kit::{
    ByteStream, Case, ConfigError, Direction, ErrorCode, Listener, StartOptions, Wakeup, case,
    check, done, flows, info, refused, same,
};

struct WriteAfterEnd {
    listener: Listener,
    kept: Vec<ByteStream>,
}

impl Case for WriteAfterEnd {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let listener = Listener::open("listen", 1).map_err(refused)?;
        Ok(WriteAfterEnd {
            listener,
            kept: Vec::new(),
        })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        let Ok(Some(connection)) = self.listener.accept(2) else {
            return Wakeup::OnReady;
        };
        match flows::open_stream(&info(), 3) {
            Ok(flow) => {
                for (what, stream) in [("a connection", connection), ("a flow", flow)] {
                    check(stream.shutdown(Direction::Write).is_ok(), what);
                    same(what, &stream.write(b"late"), &Err(ErrorCode::InvalidState));
                    self.kept.push(stream);
                }
            }
            Err(code) => check(false, &format!("open-stream: {code:?}")),
        }
        done();
        Wakeup::OnReady
    }
}

case!(WriteAfterEnd);
