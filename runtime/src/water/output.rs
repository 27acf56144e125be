use std::sync::{Arc, Mutex};

use memchr::memchr;

use crate::log::{Logger, MAX_MESSAGE, printable};

/// Which of a guest's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Error,
}

/// Makes log records of what a guest prints, one a line.
///
/// Of level DEBUG: what a module prints about a connection, strangers can have it print. The
/// rate is bounded for all instances together, by the logger they share.
pub(super) struct Output {
    logger: Arc<Mutex<Logger>>,
    out: Vec<u8>,
    error: Vec<u8>,
    /// The last line on the standard error.
    last_error: String,
}

/// Of a line that becomes part of an error, in bytes: as much as a person reads of one.
const MAX_QUOTED: usize = 300;

impl Output {
    pub(super) fn new(logger: Arc<Mutex<Logger>>) -> Output {
        Output {
            logger,
            out: Vec::new(),
            error: Vec::new(),
            last_error: String::new(),
        }
    }

    /// What was last printed on the standard error, on one line.
    pub(super) fn last_error(&mut self) -> Option<&str> {
        self.emit(Stream::Error);
        (!self.last_error.is_empty()).then_some(&*self.last_error)
    }

    /// Print. Lines that are longer than a record are cut into several.
    pub(super) fn write(&mut self, stream: Stream, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (piece, later) = rest.split_at(end);
            rest = later;
            for part in piece.chunks(MAX_MESSAGE) {
                if self.line(stream).len() + part.len() > MAX_MESSAGE {
                    self.emit(stream);
                }
                self.line(stream).extend_from_slice(part);
            }
            if self.line(stream).ends_with(b"\n") {
                self.emit(stream);
            }
        }
    }

    fn line(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Error => &mut self.error,
        }
    }

    fn emit(&mut self, stream: Stream) {
        // An idle guest holds no memory for its next line.
        let line = std::mem::take(self.line(stream));
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return;
        }
        let part = match stream {
            Stream::Out => "stdout",
            Stream::Error => {
                self.last_error = printable(text, MAX_QUOTED).into_owned();
                "stderr"
            }
        };
        let mut logger = self.logger.lock().expect("no panic under this lock");
        logger.record(tracing::Level::DEBUG, part, text);
    }
}

/// Last lines without an end.
impl Drop for Output {
    fn drop(&mut self) {
        self.emit(Stream::Out);
        self.emit(Stream::Error);
    }
}
