//! Lets the application wait for an answer that takes a while.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Destination, Direction, ErrorCode, MILLISECOND,
    StartOptions, Wakeup, case, done, same,
};

/// A host that does not wait lets the application write within this time.
const ANSWER: u64 = 300 * MILLISECOND;

const NOTHING: Result<Option<Vec<u8>>, ErrorCode> = Ok(Some(Vec::new()));

enum State {
    Dialled,
    /// The answer comes at this time.
    Awaited(u64),
    Connected,
}

struct DialConnected {
    stream: Option<ByteStream>,
    state: State,
}

impl Case for DialConnected {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        Ok(DialConnected {
            stream: None,
            state: State::Dialled,
        })
    }

    fn dial(&mut self, _: Option<Destination>, application: ByteStream) -> Result<u64, ErrorCode> {
        application.connecting();
        self.stream = Some(application);
        Ok(1)
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        let Some(stream) = &self.stream else {
            return Wakeup::OnReady;
        };
        match self.state {
            State::Dialled => {
                self.state = State::Awaited(now + ANSWER);
                Wakeup::At(now + ANSWER)
            }
            State::Awaited(due) if now < due => Wakeup::At(due),
            State::Awaited(_) => {
                let early = stream.read(ALL);
                same("before the answer", &early, &NOTHING);
                match early == NOTHING {
                    true => stream.connected(),
                    false => stream.reset(&ErrorCode::InvalidState),
                }
                self.state = State::Connected;
                Wakeup::OnReady
            }
            State::Connected => {
                let read = stream.read(ALL);
                if read != NOTHING && !watm_host_kit::is_done() {
                    same("the question", &read, &Ok(Some(b"question".to_vec())));
                    same("the answer", &stream.write(b"answer"), &Ok(6));
                    let _ = stream.shutdown(Direction::Write);
                    done();
                }
                Wakeup::OnReady
            }
        }
    }
}

case!(DialConnected);
