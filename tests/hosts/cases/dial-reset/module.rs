//! Resets streams while the application waits for an answer, for different reasons.

use watm_host_kit::{
    ByteStream, Case, ConfigError, Destination, ErrorCode, MILLISECOND, StartOptions, Wakeup, case,
    check, done,
};

/// A host that does not wait lets the dial succeed within this time.
const WAIT: u64 = 100 * MILLISECOND;

struct DialReset {
    /// The stream that is dialled, and the time of its reset once that is known.
    dialled: Option<(ByteStream, Option<u64>)>,
    reasons: Vec<ErrorCode>,
}

impl Case for DialReset {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        Ok(DialReset {
            dialled: None,
            reasons: vec![ErrorCode::RemoteUnreachable, ErrorCode::ConnectionRefused],
        })
    }

    fn dial(&mut self, _: Option<Destination>, application: ByteStream) -> Result<u64, ErrorCode> {
        application.connecting();
        self.dialled = Some((application, None));
        Ok(1)
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        let Some((stream, due)) = &mut self.dialled else {
            return Wakeup::OnReady;
        };
        let due = *due.get_or_insert(now + WAIT);
        if now < due {
            return Wakeup::At(due);
        }
        if let Some(reason) = self.reasons.pop() {
            stream.reset(&reason);
            check(
                stream.write(b"late").is_err(),
                "nothing can be written after a reset",
            );
        }
        if self.reasons.is_empty() {
            done();
        }
        self.dialled = None;
        Wakeup::OnReady
    }
}

case!(DialReset);
