//! A guest's standard output and error, as log records. The hosts of WATER modules and of programs
//! write to it.

use std::sync::{Arc, Mutex};

use memchr::memchr;

use watm_types::printable;

use crate::log::{Logger, MAX_MESSAGE};

/// The output that a guest writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Turns the lines that a guest prints into log records.
///
/// The records have level DEBUG, because strangers can make a module print about a connection. The
/// logger that all instances share bounds their rate.
pub struct Output {
    logger: Arc<Mutex<Logger>>,
    out: Vec<u8>,
    error: Vec<u8>,
    /// The last line on the standard error.
    last_error: String,
}

/// The most bytes of a line that becomes part of an error: as much as a person reads of one.
const MAX_QUOTED: usize = 300;

impl Output {
    /// Makes an output to this logger.
    pub fn new(logger: Arc<Mutex<Logger>>) -> Output {
        Output {
            logger,
            out: Vec::new(),
            error: Vec::new(),
            last_error: String::new(),
        }
    }

    /// Returns what was last printed on the standard error, on one line.
    pub fn last_error(&mut self) -> Option<&str> {
        self.emit(Stream::Error);
        (!self.last_error.is_empty()).then_some(&*self.last_error)
    }

    /// Prints text. Splits a line that is longer than a record.
    pub fn write(&mut self, stream: Stream, text: &[u8]) {
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
        // Takes the buffer, so that an idle guest holds no memory for its next line.
        let line = std::mem::take(self.line(stream));
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return;
        }
        let part = match stream {
            Stream::Out => "stdout",
            Stream::Error => {
                // The standard library of Rust ends a panic with advice for its user.
                if !text.starts_with("note: run with `RUST_BACKTRACE") {
                    self.last_error = printable(text, MAX_QUOTED).into_owned();
                }
                "stderr"
            }
        };
        let mut logger = self.logger.lock().expect("no panic under this lock");
        logger.record(tracing::Level::DEBUG, part, text);
    }
}

/// Emits the last lines, which may lack a newline.
impl Drop for Output {
    fn drop(&mut self) {
        self.emit(Stream::Out);
        self.emit(Stream::Error);
    }
}
