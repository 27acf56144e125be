//! Offers flows until the application takes no more, and again once it has room.

use watm_host_kit::{
    ByteStream, Case, ConfigError, ErrorCode, MILLISECOND, StartOptions, Wakeup, case, check, done,
    flows, info, same,
};

/// More than any application should leave waiting.
const MOST: u64 = 200_000;

struct FlowLimit {
    streams: Vec<ByteStream>,
}

impl Case for FlowLimit {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mut streams = Vec::new();
        for token in 0..MOST {
            match flows::open_stream(&info(), token) {
                Ok(stream) => streams.push(stream),
                Err(code) => {
                    same("the refusal", &code, &ErrorCode::LimitReached);
                    break;
                }
            }
        }
        check(
            (streams.len() as u64) < MOST,
            "the application accepts a bounded number of flows",
        );
        Ok(FlowLimit { streams })
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        if watm_host_kit::is_done() {
            return Wakeup::OnReady;
        }
        match flows::open_stream(&info(), MOST) {
            Ok(stream) => {
                self.streams.push(stream);
                done();
            }
            Err(ErrorCode::LimitReached) => {}
            Err(code) => check(false, &format!("a later flow: {code:?}")),
        }
        Wakeup::At(now + 20 * MILLISECOND)
    }
}

case!(FlowLimit);
