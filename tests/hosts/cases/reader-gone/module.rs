//! Writes to a flow that the application has closed.

use watm_host_kit::{
    ByteStream, Case, ConfigError, ErrorCode, StartOptions, Wakeup, case, done, flows, info,
    refused, same,
};

struct ReaderGone {
    stream: ByteStream,
    listed: bool,
}

impl Case for ReaderGone {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stream = flows::open_stream(&info(), 1).map_err(refused)?;
        same("the first write", &stream.write(b"hello"), &Ok(5));
        // The read arms the token, which tells of the end.
        same("the first read", &stream.read(16), &Ok(Some(Vec::new())));
        Ok(ReaderGone {
            stream,
            listed: false,
        })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        if ready.contains(&1) && !self.listed && self.stream.read(16) == Ok(None) {
            self.listed = true;
            same(
                "the late write",
                &self.stream.write(b"late"),
                &Err(ErrorCode::ConnectionAborted),
            );
            done();
        }
        Wakeup::OnReady
    }
}

case!(ReaderGone);
