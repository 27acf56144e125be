//! Ends one direction of a connection, and goes on with the other.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Direction, Listener, StartOptions, Wakeup, case, check,
    done, pattern, refused, same,
};

/// More than the buffers of a connection hold.
const TOTAL: usize = 8 << 20;

struct HalfClose {
    listener: Listener,
    stream: Option<ByteStream>,
    written: usize,
    finished: bool,
    read: Vec<u8>,
}

impl HalfClose {
    fn write(&mut self, stream: &ByteStream) {
        while self.written < TOTAL {
            let chunk = pattern(self.written, TOTAL - self.written);
            match stream.write(&chunk) {
                Ok(0) => return,
                Ok(count) => self.written += count as usize,
                Err(code) => return check(false, &format!("write: {code:?}")),
            }
        }
        if !self.finished {
            self.finished = true;
            check(
                stream.shutdown(Direction::Write).is_ok(),
                "the write direction can be shut down",
            );
        }
    }

    fn read(&mut self, stream: &ByteStream) {
        loop {
            match stream.read(ALL) {
                Ok(Some(data)) if data.is_empty() => return,
                Ok(Some(data)) => self.read.extend(data),
                Ok(None) => {
                    same(
                        "the other direction",
                        &self.read.as_slice(),
                        &b"late".as_slice(),
                    );
                    return done();
                }
                Err(code) => return check(false, &format!("read: {code:?}")),
            }
        }
    }
}

impl Case for HalfClose {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let listener = Listener::open("listen", 1).map_err(refused)?;
        Ok(HalfClose {
            listener,
            stream: None,
            written: 0,
            finished: false,
            read: Vec::new(),
        })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        if self.stream.is_none() {
            self.stream = self.listener.accept(2).ok().flatten();
        }
        if let Some(stream) = self.stream.take()
            && !watm_host_kit::is_done()
        {
            self.write(&stream);
            self.read(&stream);
            self.stream = Some(stream);
        }
        Wakeup::OnReady
    }
}

case!(HalfClose);
