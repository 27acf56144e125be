//! Carries a stream of the application.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Destination, Direction, ErrorCode, StartOptions, Wakeup,
    address, case, check, done, same,
};

struct Dialled {
    stream: Option<ByteStream>,
    read: Vec<u8>,
}

impl Case for Dialled {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        Ok(Dialled {
            stream: None,
            read: Vec::new(),
        })
    }

    fn dial(&mut self, to: Option<Destination>, application: ByteStream) -> Result<u64, ErrorCode> {
        same(
            "the destination",
            &to,
            &Some(Destination::Address(address(192, 0, 2, 1, 80))),
        );
        self.stream = Some(application);
        Ok(77)
    }

    fn process(&mut self, _: u64, ready: &[u64]) -> Wakeup {
        // No call of the module has armed the token.
        if ready.contains(&77)
            && let Some(stream) = &self.stream
            && !watm_host_kit::is_done()
        {
            loop {
                match stream.read(ALL) {
                    Ok(Some(data)) if data.is_empty() => break,
                    Ok(Some(data)) => self.read.extend(data),
                    Ok(None) => {
                        same(
                            "the question",
                            &self.read.as_slice(),
                            &b"question".as_slice(),
                        );
                        same("the answer", &stream.write(b"answer"), &Ok(6));
                        check(stream.shutdown(Direction::Write).is_ok(), "the stream ends");
                        done();
                        break;
                    }
                    Err(code) => {
                        check(false, &format!("read: {code:?}"));
                        break;
                    }
                }
            }
        }
        Wakeup::OnReady
    }
}

case!(Dialled);
