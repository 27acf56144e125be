//! Reads a connection before its bytes, after them, and after its end.

use watm_host_kit::{
    ALL, ByteStream, Case, ConfigError, Listener, StartOptions, Wakeup, case, done, refused, same,
};

struct EndOfStream {
    listener: Listener,
    stream: Option<ByteStream>,
    text: bool,
}

impl Case for EndOfStream {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let listener = Listener::open("listen", 1).map_err(refused)?;
        Ok(EndOfStream {
            listener,
            stream: None,
            text: false,
        })
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        let Some(stream) = &self.stream else {
            if let Ok(Some(stream)) = self.listener.accept(2) {
                same("the first read", &stream.read(ALL), &Ok(Some(Vec::new())));
                // The peer waits for this before it sends.
                same("the signal", &stream.write(b"go"), &Ok(2));
                self.stream = Some(stream);
            }
            return Wakeup::OnReady;
        };
        match stream.read(ALL) {
            Ok(Some(data)) if data.is_empty() => {}
            Ok(Some(data)) => {
                same("the bytes", &data.as_slice(), &b"abc".as_slice());
                same(
                    "the read after them",
                    &stream.read(ALL),
                    &Ok(Some(Vec::new())),
                );
                same("the second signal", &stream.write(b"end"), &Ok(3));
                self.text = true;
            }
            end => {
                same("the end", &end, &Ok(None));
                same("the end, read again", &stream.read(ALL), &Ok(None));
                same("its place", &self.text, &true);
                done();
            }
        }
        match watm_host_kit::is_done() {
            true => Wakeup::Finished,
            false => Wakeup::OnReady,
        }
    }
}

case!(EndOfStream);
