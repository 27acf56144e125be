use std::sync::{Arc, Mutex};

use memchr::memchr;

use crate::log::{Logger, MAX_MESSAGE};

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
}

impl Output {
    pub(super) fn new(logger: Arc<Mutex<Logger>>) -> Output {
        Output {
            logger,
            out: Vec::new(),
            error: Vec::new(),
        }
    }

    /// Print. Lines that are longer than a record are cut into several.
    pub(super) fn write(&mut self, stream: Stream, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (piece, later) = rest.split_at(end);
            rest = later;
            let line = match stream {
                Stream::Out => &mut self.out,
                Stream::Error => &mut self.error,
            };
            for part in piece.chunks(MAX_MESSAGE) {
                if line.len() + part.len() > MAX_MESSAGE {
                    emit(&self.logger, stream, line);
                }
                line.extend_from_slice(part);
            }
            if line.ends_with(b"\n") {
                emit(&self.logger, stream, line);
            }
        }
    }
}

/// A last line without an end.
impl Drop for Output {
    fn drop(&mut self) {
        emit(&self.logger, Stream::Out, &mut self.out);
        emit(&self.logger, Stream::Error, &mut self.error);
    }
}

fn emit(logger: &Mutex<Logger>, stream: Stream, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    if !text.is_empty() {
        let part = match stream {
            Stream::Out => "stdout",
            Stream::Error => "stderr",
        };
        let mut logger = logger.lock().expect("no panic under this lock");
        logger.record(tracing::Level::DEBUG, part, text);
    }
    // An idle guest holds no memory for this.
    *line = Vec::new();
}
