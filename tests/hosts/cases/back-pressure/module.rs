//! Writes more to a flow than the application takes at once.

use watm_host_kit::{
    ByteStream, Case, ConfigError, Direction, StartOptions, Wakeup, case, check, done, flows, info,
    pattern, refused,
};

/// More than any host should keep for an application that does not read.
const TOTAL: usize = 64 << 20;
const CHUNK: usize = 64 << 10;

struct BackPressure {
    stream: ByteStream,
    written: usize,
    short: bool,
}

impl BackPressure {
    fn write(&mut self) {
        while self.written < TOTAL {
            let chunk = pattern(self.written, CHUNK.min(TOTAL - self.written));
            match self.stream.write(&chunk) {
                Ok(count) => {
                    self.written += count as usize;
                    if (count as usize) < chunk.len() {
                        self.short = true;
                        return;
                    }
                }
                Err(code) => return check(false, &format!("write: {code:?}")),
            }
        }
        if self.stream.shutdown(Direction::Write).is_ok() {
            check(
                self.short,
                "a write falls short while the application does not read",
            );
            done();
        }
    }
}

impl Case for BackPressure {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let stream = flows::open_stream(&info(), 1).map_err(refused)?;
        let mut case = BackPressure {
            stream,
            written: 0,
            short: false,
        };
        case.write();
        Ok(case)
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        // Only a token tells that there is room again.
        if ready.contains(&1) && !watm_host_kit::is_done() {
            self.write();
        }
        Wakeup::OnReady
    }
}

case!(BackPressure);
