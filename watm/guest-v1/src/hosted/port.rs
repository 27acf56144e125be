//! A descriptor as a stream that a transport owns. Used by `imports`.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use wasip1::Errno;
use watm_core::{ByteStream, Direction, ErrorCode, Token};
use watm_stream::{End, Read};

use crate::descriptor::Descriptor;

/// The shell's side of a stream: the readiness that the transport waits for, and the outcome.
pub struct Port(Rc<RefCell<State>>);

struct State {
    descriptor: Descriptor,
    token: Token,
    /// Shortfalls that the transport must be told about. A new stream is armed for reading.
    wants_read: bool,
    wants_write: bool,
    /// True after the end of the stream, or an error that has ended both directions.
    over: bool,
    /// True if the other end has stopped reading and writing. Its written data is still there.
    abandoned: bool,
    read_closed: bool,
    write_closed: bool,
    released: Option<Result<(), ErrorCode>>,
}

impl Port {
    pub fn new(descriptor: Descriptor) -> Port {
        Port(Rc::new(RefCell::new(State {
            descriptor,
            token: 0,
            wants_read: true,
            wants_write: false,
            over: false,
            abandoned: false,
            read_closed: false,
            write_closed: false,
            released: None,
        })))
    }

    /// The transport's side. Call it once.
    pub fn stream(&self) -> Box<dyn ByteStream> {
        Box::new(Stream(Rc::clone(&self.0)))
    }

    pub fn set_token(&self, token: Token) {
        self.0.borrow_mut().token = token;
    }

    pub fn descriptor(&self) -> Descriptor {
        self.0.borrow().descriptor.again()
    }

    /// Returns the token, which the transport is now told.
    pub fn wake(&mut self) -> Token {
        let mut state = self.0.borrow_mut();
        state.wants_read = false;
        state.wants_write = false;
        state.token
    }

    /// The need to wait until the stream is readable, and until it is writable.
    pub fn needs(&self) -> (bool, bool) {
        let state = self.0.borrow();
        let open = state.released.is_none() && !state.over;
        // Writability is reported even after the end of the readable data.
        let writable = state.released.is_none() && state.descriptor.failure().is_none();
        (open && state.wants_read, writable && state.wants_write)
    }

    /// Record that the other end is about to go, and waits for its written data to be read.
    pub fn abandon(&mut self) {
        self.0.borrow_mut().abandoned = true;
    }

    /// Returns true if no more data can arrive.
    pub fn is_over(&self) -> bool {
        let state = self.0.borrow();
        state.over || state.released.is_some()
    }

    /// The outcome, once the transport has released the stream: the end of both directions, or an
    /// error.
    pub fn released(&self) -> Option<Result<(), ErrorCode>> {
        self.0.borrow().released.clone()
    }

    pub fn failure(&self) -> Option<Errno> {
        self.0.borrow().descriptor.failure()
    }
}

struct Stream(Rc<RefCell<State>>);

impl ByteStream for Stream {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if state.over || state.read_closed {
            return Ok(None);
        }
        if max_bytes == 0 {
            // The system would report the end of the stream.
            return Ok(Some(Vec::new()));
        }
        let mut data = Vec::new();
        // Lossless, since pointers of wasm32 have 32 bits.
        match End::read(&mut state.descriptor, &mut data, max_bytes as usize) {
            Ok(Read::More) => Ok(Some(data)),
            Ok(Read::Short) if state.abandoned && data.is_empty() => {
                state.over = true;
                Ok(None)
            }
            Ok(Read::Short) => {
                state.wants_read = true;
                Ok(Some(data))
            }
            Ok(Read::End) => {
                state.over = true;
                Ok(None)
            }
            Err(reason) => {
                state.over = true;
                Err(reason)
            }
        }
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if state.write_closed {
            return Err(ErrorCode::InvalidState);
        }
        if state.abandoned {
            return Err(ErrorCode::ConnectionAborted);
        }
        let count = End::write(&mut state.descriptor, data)?;
        state.wants_write |= count < data.len();
        Ok(count as u32)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if direction != Direction::Write && !state.read_closed {
            state.read_closed = true;
            End::ignore(&mut state.descriptor)?;
        }
        if direction != Direction::Read && !state.write_closed {
            state.write_closed = true;
            End::finish(&mut state.descriptor)?;
        }
        Ok(())
    }

    fn reset(&mut self, reason: ErrorCode) {
        let state = &mut *self.0.borrow_mut();
        state.released.get_or_insert(Err(reason));
        state.descriptor.again().hang_up();
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        // WATER hosts tell no address.
        None
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let state = &mut *self.0.borrow_mut();
        let closed = state.write_closed && (state.read_closed || state.over);
        let regular = match closed {
            true => Ok(()),
            false => Err(ErrorCode::ConnectionAborted),
        };
        state.released.get_or_insert(regular);
    }
}
