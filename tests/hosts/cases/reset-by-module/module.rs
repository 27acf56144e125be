//! Resets flows for different reasons.

use watm_host_kit::{
    ByteStream, Case, ConfigError, ErrorCode, StartOptions, Wakeup, case, check, done, flows, info,
    refused,
};

struct ResetByModule {
    streams: Vec<ByteStream>,
}

impl Case for ResetByModule {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mut streams = Vec::new();
        for token in 0..3 {
            streams.push(flows::open_stream(&info(), token).map_err(refused)?);
        }
        Ok(ResetByModule { streams })
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        let reasons = [
            ErrorCode::Timeout,
            ErrorCode::RemoteUnreachable,
            ErrorCode::ConnectionRefused,
        ];
        for token in ready {
            let stream = &self.streams[*token as usize];
            if let Ok(Some(data)) = stream.read(16)
                && !data.is_empty()
            {
                stream.reset(&reasons[*token as usize]);
                let read = stream.read(16);
                check(
                    !matches!(read, Ok(Some(_))),
                    "nothing can be read after a reset",
                );
                check(
                    stream.write(b"late").is_err(),
                    "nothing can be written after a reset",
                );
                if *token == 2 {
                    done();
                }
            }
        }
        Wakeup::OnReady
    }
}

case!(ResetByModule);
