//! A rustls connection between buffers. Used by `accepted`, `dialled` and `transport`.

use std::io::{self, BufRead, IoSlice, Write};

use rustls::{Connection, Error};
use watm_stream::Buffer;

/// A TLS connection, accepted or dialled.
///
/// Between calls rustls holds at most one unfinished record, or one handshake message of at most 64
/// KiB.
pub struct Session {
    connection: Connection,
    /// True if the other end has announced the end of its data.
    ended: bool,
}

impl Session {
    pub fn new(connection: impl Into<Connection>) -> Session {
        let mut connection = connection.into();
        // A codec gets a bounded piece at a time, and all of it leaves at once.
        connection.set_buffer_limit(None);
        Session {
            connection,
            ended: false,
        }
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Consumes all of `from`. After an error `network` contains the alert about it.
    pub fn receive(
        &mut self,
        from: &mut Buffer,
        plaintext: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), Error> {
        while !from.is_empty() && !self.ended {
            let taken = self
                .connection
                .read_tls(&mut from.bytes())
                // The buffer has room after every `process_new_packets`, except for a message that
                // is too long.
                .map_err(|error| Error::General(error.to_string()))?;
            from.consume(taken);
            let processed = self.connection.process_new_packets();
            let state = match processed {
                Ok(state) => state,
                Err(error) => {
                    self.flush(network);
                    return Err(error);
                }
            };
            self.ended = state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.connection.reader();
            while left > 0 {
                let length = match reader.fill_buf() {
                    Ok(bytes) if !bytes.is_empty() => {
                        plaintext.extend(bytes);
                        bytes.len()
                    }
                    _ => break,
                };
                reader.consume(length);
                left = left.saturating_sub(length);
            }
            if taken == 0 && !self.ended {
                return Err(Error::General("a message is too long".to_owned()));
            }
        }
        if self.ended {
            from.clear();
        }
        self.flush(network);
        Ok(())
    }

    /// Encrypts all of `from`.
    pub fn send(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), Error> {
        let written = self.connection.writer().write(from.bytes());
        from.consume(written.map_err(|error| Error::General(error.to_string()))?);
        self.flush(network);
        Ok(())
    }

    /// Announces the end of data.
    pub fn end(&mut self, network: &mut Buffer) {
        self.connection.send_close_notify();
        self.flush(network);
    }

    /// Moves pending bytes to `network`.
    pub fn flush(&mut self, network: &mut Buffer) {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Sink(network)) {
                Ok(written) if written > 0 => {}
                _ => break,
            }
        }
    }
}

struct Sink<'a>(&'a mut Buffer);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().for_each(|slice| self.0.extend(slice));
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
